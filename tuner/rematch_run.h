// Plays the rematches of one problem: candidates in turn, until their samples say enough.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tuner/rematch.h"
#include "tuner/time_stage.h"

namespace attune {

// The numbers of a tune, by candidate index.
struct TimeTable {
  std::vector<std::map<int, Timing>> times;  // by the kv_len measured at
  std::set<std::size_t> failed;              // these have no times

  void fail(std::size_t idx) {
    failed.insert(idx);
    times[idx].clear();
  }
};

// One CUDA graph in a hundred is 0.25 us a launch slower for its whole life than others of the same
// launches (H200, driver 580). So a number counts when two graphs give it: as near as this, of what
// regrets are counted over, once what moved all numbers is taken off. If there are no two among the
// first pass and so many rematches, the last one counts.
constexpr double kSameTime = 0.01;
constexpr int kMostPlays = 3;

class RematchRun {
 public:
  // Both have to outlive it. What is played replaces the table's numbers.
  RematchRun(const TimeRequest& request, TimeTable* table) : request_(request), table_(*table) {}

  // A B C A B C at every length where not all of them have played together, as often as kSameTime
  // says. False when stopped.
  bool play(const std::set<std::size_t>& players, const std::set<int>& lengths,
            const std::optional<std::size_t>& default_idx);
  // All rounds of two alone, for their gain; ends when one of them fails. The table's numbers stay.
  // False when stopped, which is for the caller to say.
  bool prove(std::size_t slow, std::size_t fast, const std::set<int>& lengths,
             const std::function<bool()>& stop);

  // Puts the numbers of the last rematch of all these at each length into the table.
  void take_numbers(const std::set<std::size_t>& players, const std::set<int>& lengths);

  // Whether a candidate that has not failed has played at all lengths.
  bool has_played(std::size_t idx, const std::set<int>& lengths) const;
  // By the pairs of all lengths and all rematches that both played.
  Gain gain(std::size_t slow, std::size_t fast, const std::set<int>& lengths) const;

 private:
  using Medians = std::map<std::size_t, double>;

  bool have_met(const std::set<std::size_t>& players, int length) const;
  std::optional<Play> play_rounds(const std::set<std::size_t>& players, int length, int min_rounds,
                                  const std::optional<std::size_t>& default_idx,
                                  const std::function<bool()>& stop);
  bool play_round(const std::set<std::size_t>& players, int length,
                  const std::function<bool()>& stop, Play* play);
  Medians first_medians(const std::set<std::size_t>& players, int length) const;
  double best_us(int length) const;

  const TimeRequest& request_;
  TimeTable& table_;
  std::map<int, std::vector<Play>> plays_;  // by length
};

// Whether each of `now` is near its number in one of `before`, up to what moved all that both have:
// their lower median ratio, since a graph is never fast by chance.
bool is_confirmed(const std::map<std::size_t, double>& now,
                  const std::vector<std::map<std::size_t, double>>& before, double tolerance_us);

}  // namespace attune
