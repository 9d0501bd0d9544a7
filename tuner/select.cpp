#include "tuner/select.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "templates/launch_plan.h"

namespace attune {
namespace {

using Points = std::map<int, const Measurement*>;

struct Contender {
  const Candidate* candidate;
  Points points;
  double regret;  // the worst
};

// Measurements by kv_len; the last one of a point counts. Points without a time are absent.
Points points_of(const CandidateMeasurements& measured) {
  Points points;
  for (const Measurement& point : measured.points) {
    if (point.median_us > 0) points[point.kv_len] = &point;
  }
  return points;
}

bool has_all(const Points& points, const std::vector<int>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](int point) { return points.count(point) > 0; });
}

bool is_among(const Candidate& candidate, const std::vector<Candidate>& some) {
  return std::find(some.begin(), some.end(), candidate) != some.end();
}

// The best time of each point.
std::map<int, double> best_times(const std::vector<Points>& all) {
  std::map<int, double> best;
  for (const Points& points : all) {
    for (const auto& [kv_len, point] : points) {
      const auto [it, is_first] = best.try_emplace(kv_len, point->median_us);
      if (!is_first) it->second = std::min(it->second, point->median_us);
    }
  }
  return best;
}

double worst_of(const Points& points, const std::vector<int>& wanted,
                const std::map<int, double>& best) {
  double worst = 0;
  const double longest_us = best.at(wanted.back());
  for (const int kv_len : wanted) {
    const double best_us = best.at(kv_len);
    const double lost_us = points.at(kv_len)->median_us - best_us;
    worst = std::max(worst, lost_us / counted_us(best_us, longest_us));
  }
  return worst;
}

// The fixed order among tied candidates.
auto tie_order(const Problem& problem, const Candidate& candidate,
               const std::optional<Candidate>& defending) {
  return std::make_tuple(candidate == defending ? 0 : 1, candidate.split_cap,
                         plan_launch(problem, candidate).split.smem_bytes, candidate.text());
}

// The best of `contenders`, which is not empty.
const Contender& best_of(const Problem& problem, const std::vector<Contender>& contenders,
                         const std::optional<Candidate>& defending) {
  const Contender& least =
      *std::min_element(contenders.begin(), contenders.end(), [](const auto& a, const auto& b) {
        return std::tie(a.regret, *a.candidate) < std::tie(b.regret, *b.candidate);
      });
  const Contender* best = nullptr;
  for (const Contender& one : contenders) {
    if (one.regret > least.regret + kTieRegret) continue;
    if (best == nullptr || tie_order(problem, *one.candidate, defending) <
                               tie_order(problem, *best->candidate, defending)) {
      best = &one;
    }
  }
  return *best;
}

// The largest of a's times over b's; empty unless both were timed the same way at the same points.
std::optional<double> worst_time_ratio(const Winner& a, const Winner& b) {
  if (a.measurements.empty() || a.measurements.size() != b.measurements.size()) return std::nullopt;
  double worst = 0;
  for (std::size_t i = 0; i < a.measurements.size(); ++i) {
    const Measurement& of_a = a.measurements[i];
    const Measurement& of_b = b.measurements[i];
    if (of_a.kv_len != of_b.kv_len || of_a.method != of_b.method ||
        of_a.driver_version != of_b.driver_version || of_b.median_us <= 0) {
      return std::nullopt;
    }
    worst = std::max(worst, of_a.median_us / of_b.median_us);
  }
  return worst;
}

}  // namespace

std::vector<int> kv_points(const KvRange& range) {
  std::vector<int> points;
  for (std::int64_t point = 1; point <= range.max; point *= 2) {
    if (point >= range.min) points.push_back(static_cast<int>(point));
  }
  if (points.empty()) points.push_back(range.min);
  if (points.back() != range.max) points.push_back(range.max);
  return points;
}

double counted_us(double best_us, double longest_best_us) {
  return std::max(best_us, std::min(longest_best_us, kNoticedUs));
}

std::map<Candidate, double> worst_regrets(const std::vector<CandidateMeasurements>& measured,
                                          const std::vector<int>& points) {
  std::vector<Points> all;
  for (const CandidateMeasurements& one : measured) all.push_back(points_of(one));
  const std::map<int, double> best = best_times(all);
  std::map<Candidate, double> regrets;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    if (!has_all(all[i], points)) continue;
    regrets[measured[i].candidate] = worst_of(all[i], points, best);
  }
  return regrets;
}

std::optional<Selection> select_winner(const Problem& problem,
                                       const std::vector<CandidateMeasurements>& measured,
                                       const Rematch& rematch) {
  const std::vector<int> wanted = kv_points(problem.kv);
  std::vector<Contender> contenders;
  std::vector<Points> all;
  for (const CandidateMeasurements& one : measured) {
    const bool defends = one.candidate == rematch.defending;
    if (!rematch.finalists.empty() && !defends && !is_among(one.candidate, rematch.finalists))
      continue;
    all.push_back(points_of(one));
    if (has_all(all.back(), wanted)) contenders.push_back({&one.candidate, all.back(), 0});
  }
  if (contenders.empty()) return std::nullopt;
  const std::map<int, double> best = best_times(all);
  for (Contender& one : contenders) one.regret = worst_of(one.points, wanted, best);

  const auto defender = std::find_if(contenders.begin(), contenders.end(), [&](const auto& one) {
    return *one.candidate == rematch.defending;
  });
  if (rematch.defending && defender == contenders.end()) return std::nullopt;
  const auto gain_of = [&](const Contender& one) {
    const auto gain = rematch.gains.find(*one.candidate);
    return gain == rematch.gains.end() ? Gain{} : gain->second;
  };
  std::vector<Contender> proven;
  for (const Contender& one : contenders) {
    const bool may_win =
        !rematch.defending || *one.candidate == rematch.defending || gain_of(one).low > 0;
    if (may_win) proven.push_back(one);
  }
  const Contender winner = best_of(problem, proven, rematch.defending);
  Selection selection{*winner.candidate, winner.regret, {}, std::nullopt, 0};
  if (*winner.candidate != rematch.defending) selection.over_default = gain_of(winner);
  std::erase_if(contenders,
                [&](const Contender& one) { return one.candidate == winner.candidate; });
  if (!contenders.empty()) {
    const Contender runner_up = best_of(problem, contenders, rematch.defending);
    selection.runner_up = *runner_up.candidate;
    selection.runner_up_regret = runner_up.regret;
  }
  return selection;
}

bool serves_better(const WinnerHit& a, const WinnerHit& b) {
  // Times of two GPUs do not compare; what the asked one has is its own.
  const bool a_is_own = a.freshness != Freshness::kOtherGpu;
  if (a_is_own != (b.freshness != Freshness::kOtherGpu)) return a_is_own;
  if (a.match != b.match) return a.match == Match::kExact;
  const bool a_is_newer = a.winner.created_at > b.winner.created_at;
  const Winner& newer = a_is_newer ? a.winner : b.winner;
  const Winner& older = a_is_newer ? b.winner : a.winner;
  const auto ratio = worst_time_ratio(older, newer);
  const bool older_serves = ratio && *ratio * kClearlyFaster < 1;
  return a_is_newer != older_serves;
}

}  // namespace attune
