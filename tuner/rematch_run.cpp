#include "tuner/rematch_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace attune {
namespace {

// What moved all numbers from `before` to `now`; 1 where they have no two in common.
double common_shift(const std::map<std::size_t, double>& now,
                    const std::map<std::size_t, double>& before) {
  std::vector<double> ratios;
  for (const auto& [idx, us] : now) {
    const auto earlier = before.find(idx);
    if (earlier != before.end()) ratios.push_back(us / earlier->second);
  }
  if (ratios.size() < 2) return 1;
  std::sort(ratios.begin(), ratios.end());
  return ratios[(ratios.size() - 1) / 2];
}

}  // namespace

bool is_confirmed(const std::map<std::size_t, double>& now,
                  const std::vector<std::map<std::size_t, double>>& before, double tolerance_us) {
  return std::all_of(now.begin(), now.end(), [&](const auto& of_player) {
    const auto& [idx, us] = of_player;
    return std::any_of(before.begin(), before.end(), [&](const auto& earlier) {
      const auto number = earlier.find(idx);
      return number != earlier.end() &&
             std::abs(us - number->second * common_shift(now, earlier)) <= tolerance_us;
    });
  });
}

bool RematchRun::play(const std::set<std::size_t>& players, const std::set<int>& lengths,
                      const std::optional<std::size_t>& default_idx) {
  for (const int length : lengths) {
    if (have_met(players, length)) continue;
    std::vector<Medians> before = {first_medians(players, length)};
    const int most_plays = request_.plan.plays_again ? kMostPlays : 1;
    for (int count = 1; count <= most_plays; ++count) {
      auto play =
          play_rounds(players, length, request_.plan.min_rounds, default_idx, request_.stop);
      if (!play) return false;
      Medians now;
      for (const auto& [idx, rounds] : play->rounds) {
        table_.times[idx][length] = play->total(idx);
        now[idx] = table_.times[idx][length].median_us;
      }
      plays_[length].push_back(std::move(*play));
      const double over_us = counted_us(best_us(length), best_us(*lengths.rbegin()));
      if (is_confirmed(now, before, kSameTime * over_us)) break;
      before.push_back(std::move(now));
    }
  }
  return true;
}

bool RematchRun::prove(std::size_t slow, std::size_t fast, const std::set<int>& lengths,
                       const std::function<bool()>& stop) {
  for (const int length : lengths) {
    auto play = play_rounds({slow, fast}, length, request_.plan.max_rounds, slow, stop);
    if (!play) return false;
    if (play->rounds.size() < 2) return true;
    plays_[length].push_back(std::move(*play));
  }
  return true;
}

void RematchRun::take_numbers(const std::set<std::size_t>& players, const std::set<int>& lengths) {
  for (const int length : lengths) {
    auto& plays = plays_[length];
    const auto last = std::find_if(plays.rbegin(), plays.rend(), [&](const Play& play) {
      return std::all_of(players.begin(), players.end(),
                         [&](std::size_t idx) { return play.rounds.count(idx) > 0; });
    });
    if (last == plays.rend()) continue;
    for (const std::size_t idx : players) table_.times[idx][length] = last->total(idx);
  }
}

bool RematchRun::has_played(std::size_t idx, const std::set<int>& lengths) const {
  return table_.failed.count(idx) == 0 &&
         std::all_of(lengths.begin(), lengths.end(),
                     [&](int length) { return have_met({idx}, length); });
}

Gain RematchRun::gain(std::size_t slow, std::size_t fast, const std::set<int>& lengths) const {
  std::vector<std::vector<double>> ratios;
  for (const int length : lengths) {
    const auto plays = plays_.find(length);
    ratios.push_back(plays == plays_.end() ? std::vector<double>()
                                           : log_ratios(plays->second, slow, fast));
  }
  return gain_of(ratios);
}

// In one rematch, those who failed aside.
bool RematchRun::have_met(const std::set<std::size_t>& players, int length) const {
  const auto plays = plays_.find(length);
  if (plays == plays_.end()) return false;
  return std::any_of(plays->second.begin(), plays->second.end(), [&](const Play& play) {
    return std::all_of(players.begin(), players.end(), [&](std::size_t idx) {
      return table_.failed.count(idx) > 0 || play.rounds.count(idx) > 0;
    });
  });
}

// With new graphs, from min_rounds on until the times say enough or nobody is left to compare with;
// empty when stopped.
std::optional<Play> RematchRun::play_rounds(const std::set<std::size_t>& players, int length,
                                            int min_rounds,
                                            const std::optional<std::size_t>& default_idx,
                                            const std::function<bool()>& stop) {
  Play play;
  for (int round = 1; round <= request_.plan.max_rounds; ++round) {
    if (!play_round(players, length, stop, &play)) return std::nullopt;
    if (play.rounds.size() < 2) break;
    if (round >= min_rounds && is_settled(play, default_idx)) break;
  }
  return play;
}

// False when stopped.
bool RematchRun::play_round(const std::set<std::size_t>& players, int length,
                            const std::function<bool()>& stop, Play* play) {
  const int samples = request_.plan.round_samples;
  for (const std::size_t idx : players) {
    if (stop()) return false;
    if (table_.failed.count(idx) > 0) continue;
    const bool is_first = play->rounds.count(idx) == 0;
    auto timing =
        request_.measure(request_.candidates[idx], length,
                         {.min_samples = samples, .max_samples = samples, .new_graph = is_first});
    if (timing) {
      play->rounds[idx].push_back(std::move(*timing));
    } else if (request_.dropped()) {
      return false;
    } else {
      table_.fail(idx);
      play->rounds.erase(idx);
    }
  }
  return true;
}

RematchRun::Medians RematchRun::first_medians(const std::set<std::size_t>& players,
                                              int length) const {
  Medians medians;
  for (const std::size_t idx : players) {
    const auto time = table_.times[idx].find(length);
    if (time != table_.times[idx].end()) medians[idx] = time->second.median_us;
  }
  return medians;
}

double RematchRun::best_us(int length) const {
  double best = std::numeric_limits<double>::infinity();
  for (const auto& times : table_.times) {
    const auto time = times.find(length);
    if (time != times.end()) best = std::min(best, time->second.median_us);
  }
  return best;
}

}  // namespace attune
