// Plays the rematches of one problem: candidates in turn at each length, until their samples say enough.
#pragma once

#include <cstddef>
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
// regrets are counted over.
constexpr double kSameTime = 0.01;

class RematchRun {
 public:
  // Both have to outlive it. What is played replaces the table's numbers.
  RematchRun(const TimeRequest& request, TimeTable* table) : request_(request), table_(*table) {}

  // A B C A B C at every length where not all of them have played together. Where a number is not
  // near the one before it all play once more with new graphs. False when stopped.
  bool play(const std::set<std::size_t>& players, const std::set<int>& lengths,
            const std::optional<std::size_t>& default_idx);
  // All rounds of two alone, for their gain. The table stays. False when stopped.
  bool prove(std::size_t slow, std::size_t fast, const std::set<int>& lengths);

  bool has_played(std::size_t idx, const std::set<int>& lengths) const;
  // By the pairs of all lengths and all rematches that both played.
  Gain gain(std::size_t slow, std::size_t fast, const std::set<int>& lengths) const;

 private:
  bool have_played(const std::set<std::size_t>& players, int length) const;
  bool play_round(const std::set<std::size_t>& players, int length, Play* play);
  bool is_confirmed(const Play& play, int length, int longest) const;
  double best_us(int length) const;

  const TimeRequest& request_;
  TimeTable& table_;
  std::map<int, std::vector<Play>> plays_;  // by length
};

}  // namespace attune
