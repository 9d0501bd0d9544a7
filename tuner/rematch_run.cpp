#include "tuner/rematch_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace attune {

bool RematchRun::play(const std::set<std::size_t>& players, const std::set<int>& lengths,
                      const std::optional<std::size_t>& default_idx) {
  for (const int length : lengths) {
    if (have_played(players, length)) continue;
    for (bool is_last = !request_.plan.plays_again;; is_last = true) {
      Play play;
      for (int round = 1; round <= request_.plan.max_rounds; ++round) {
        if (!play_round(players, length, &play)) return false;
        if (round >= request_.plan.min_rounds && is_settled(play, default_idx)) break;
      }
      const bool counts = is_last || is_confirmed(play, length, *lengths.rbegin());
      for (const auto& [idx, rounds] : play.rounds) table_.times[idx][length] = play.total(idx);
      plays_[length].push_back(std::move(play));
      if (counts) break;
    }
  }
  return true;
}

bool RematchRun::prove(std::size_t slow, std::size_t fast, const std::set<int>& lengths) {
  for (const int length : lengths) {
    Play play;
    for (int round = 1; round <= request_.plan.max_rounds; ++round) {
      if (!play_round({slow, fast}, length, &play)) return false;
    }
    plays_[length].push_back(std::move(play));
  }
  return true;
}

bool RematchRun::has_played(std::size_t idx, const std::set<int>& lengths) const {
  return std::all_of(lengths.begin(), lengths.end(),
                     [&](int length) { return have_played({idx}, length); });
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

// Together, those who failed aside.
bool RematchRun::have_played(const std::set<std::size_t>& players, int length) const {
  const auto plays = plays_.find(length);
  if (plays == plays_.end()) return false;
  return std::any_of(plays->second.begin(), plays->second.end(), [&](const Play& play) {
    return std::all_of(players.begin(), players.end(), [&](std::size_t idx) {
      return table_.failed.count(idx) > 0 || play.rounds.count(idx) > 0;
    });
  });
}

// False when stopped. A play begins with new graphs.
bool RematchRun::play_round(const std::set<std::size_t>& players, int length, Play* play) {
  const int samples = request_.plan.round_samples;
  for (const std::size_t idx : players) {
    if (request_.stop()) return false;
    if (table_.failed.count(idx) > 0) continue;
    const bool is_first = play->rounds.count(idx) == 0;
    auto timing =
        request_.measure(request_.candidates[idx], length,
                         {.min_samples = samples, .max_samples = samples, .new_graph = is_first});
    if (timing) {
      play->rounds[idx].push_back(std::move(*timing));
    } else {
      table_.fail(idx);
      play->rounds.erase(idx);
    }
  }
  return true;
}

// Whether the table's numbers, which other graphs gave, are near those of `play`.
bool RematchRun::is_confirmed(const Play& play, int length, int longest) const {
  const double over_us = counted_us(best_us(length), best_us(longest));
  return std::all_of(play.rounds.begin(), play.rounds.end(), [&](const auto& of_player) {
    const auto before = table_.times[of_player.first].find(length);
    const double us = play.total(of_player.first).median_us;
    return before == table_.times[of_player.first].end() ||
           std::abs(us - before->second.median_us) <= kSameTime * over_us;
  });
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
