#include "tuner/rematch.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attune {
namespace {

std::vector<double> ratios_of(const Play& play, std::size_t slow, std::size_t fast) {
  std::vector<double> ratios;
  const auto& of_slow = play.rounds.at(slow);
  const auto& of_fast = play.rounds.at(fast);
  for (std::size_t round = 0; round < std::min(of_slow.size(), of_fast.size()); ++round) {
    const auto& a = of_slow[round].samples_us;
    const auto& b = of_fast[round].samples_us;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      ratios.push_back(std::log(a[i] / b[i]));
    }
  }
  return ratios;
}

}  // namespace

Timing Play::total(std::size_t idx) const {
  std::vector<double> samples;
  int num_dropped = 0;
  Conditions conditions = rounds.at(idx).front().conditions;
  for (const Timing& round : rounds.at(idx)) {
    samples.insert(samples.end(), round.samples_us.begin(), round.samples_us.end());
    num_dropped += round.num_dropped;
    conditions = merged(conditions, round.conditions);
  }
  Timing all = summarize(samples);
  all.num_dropped += num_dropped;
  all.conditions = conditions;
  return all;
}

std::vector<double> log_ratios(const std::vector<Play>& plays, std::size_t slow, std::size_t fast) {
  std::vector<double> all;
  for (auto play = plays.rbegin(); play != plays.rend(); ++play) {
    if (play->rounds.count(slow) == 0 || play->rounds.count(fast) == 0) continue;
    const std::vector<double> ratios = ratios_of(*play, slow, fast);
    all.insert(all.end(), ratios.begin(), ratios.end());
  }
  return all;
}

Gain gain_of(const std::vector<std::vector<double>>& ratios) {
  std::size_t num_pairs = std::numeric_limits<std::size_t>::max();
  for (const auto& of_length : ratios) num_pairs = std::min(num_pairs, of_length.size());
  std::vector<double> means(num_pairs, 0);
  for (const auto& of_length : ratios) {
    for (std::size_t i = 0; i < num_pairs; ++i) {
      means[i] += of_length[i] / static_cast<double>(ratios.size());
    }
  }
  if (means.empty()) return {-1, 0};
  std::sort(means.begin(), means.end());
  const int rank = bound_rank(static_cast<int>(means.size()), kProofRisk);
  const double low = rank == 0 ? -1 : std::exp(means[static_cast<std::size_t>(rank) - 1]) - 1;
  return {low, std::exp(quantile(means, 0.5)) - 1};
}

bool is_settled(const Play& play, const std::optional<std::size_t>& default_idx) {
  if (play.rounds.empty()) return true;
  const bool has_default = default_idx && play.rounds.count(*default_idx) > 0;
  const std::size_t base = has_default ? *default_idx : play.rounds.begin()->first;
  for (const auto& [idx, rounds] : play.rounds) {
    if (idx == base) continue;
    const std::vector<double> ratios = ratios_of(play, base, idx);
    if (ratios.empty() || bound_rank(static_cast<int>(ratios.size()), kProofRisk) == 0) {
      return false;
    }
    const Interval in = median_interval(ratios, kShownRisk);
    const bool is_narrow = in.high - in.low <= 2 * kSettledRatio;
    const bool has_sign = in.low > 2 * kSettledRatio || in.high < -2 * kSettledRatio;
    if (!is_narrow && !has_sign) return false;
  }
  return true;
}

}  // namespace attune
