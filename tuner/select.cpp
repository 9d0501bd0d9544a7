#include "tuner/select.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "templates/launch_plan.h"

namespace attune {
namespace {

struct Contender {
  const Candidate* candidate;
  double worst_regret;
};

// Median times by kv_len; the last measurement of a point counts. Points without one are absent.
std::map<int, double> times_of(const CandidateMeasurements& measured) {
  std::map<int, double> times;
  for (const Measurement& point : measured.points) {
    if (point.median_us > 0) times[point.kv_len] = point.median_us;
  }
  return times;
}

// The fixed order among tied candidates.
auto tie_order(const Problem& problem, const Candidate& candidate) {
  return std::make_tuple(candidate.split_cap, plan_launch(problem, candidate).split.smem_bytes,
                         candidate.text());
}

// The best of `contenders`, which is not empty: least regret, then the fixed order among the tied.
const Contender& best_of(const Problem& problem, const std::vector<Contender>& contenders) {
  double least = contenders.front().worst_regret;
  for (const Contender& one : contenders) least = std::min(least, one.worst_regret);
  const Contender* best = nullptr;
  for (const Contender& one : contenders) {
    if (one.worst_regret > least + kTieRegret) continue;
    if (best == nullptr ||
        tie_order(problem, *one.candidate) < tie_order(problem, *best->candidate)) {
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

std::map<Candidate, double> worst_regrets(const std::vector<CandidateMeasurements>& measured,
                                          const std::vector<int>& points) {
  std::map<int, double> best_times;
  std::vector<std::pair<const Candidate*, std::map<int, double>>> complete;
  for (const CandidateMeasurements& one : measured) {
    std::map<int, double> times = times_of(one);
    bool has_all = true;
    for (const int point : points) {
      const auto time = times.find(point);
      has_all = has_all && time != times.end();
      if (time == times.end()) continue;
      const auto [best, is_first] = best_times.try_emplace(point, time->second);
      if (!is_first) best->second = std::min(best->second, time->second);
    }
    if (has_all) complete.emplace_back(&one.candidate, std::move(times));
  }
  std::map<Candidate, double> regrets;
  for (const auto& [candidate, times] : complete) {
    double& worst = regrets[*candidate];
    for (const int point : points) {
      worst = std::max(worst, times.at(point) / best_times.at(point) - 1);
    }
  }
  return regrets;
}

std::optional<Selection> select_winner(const Problem& problem,
                                       const std::vector<CandidateMeasurements>& measured) {
  const std::map<Candidate, double> regrets = worst_regrets(measured, kv_points(problem.kv));
  std::vector<Contender> contenders;
  for (const auto& [candidate, regret] : regrets) contenders.push_back({&candidate, regret});
  if (contenders.empty()) return std::nullopt;

  const Contender winner = best_of(problem, contenders);
  Selection selection{*winner.candidate, winner.worst_regret, std::nullopt, 0};
  std::erase_if(contenders,
                [&](const Contender& one) { return one.candidate == winner.candidate; });
  if (!contenders.empty()) {
    const Contender runner_up = best_of(problem, contenders);
    selection.runner_up = *runner_up.candidate;
    selection.runner_up_regret = runner_up.worst_regret;
  }
  return selection;
}

bool serves_better(const WinnerHit& a, const WinnerHit& b) {
  if (a.match != b.match) return a.match == Match::kExact;
  const bool a_is_newer = a.winner.created_at > b.winner.created_at;
  const Winner& newer = a_is_newer ? a.winner : b.winner;
  const Winner& older = a_is_newer ? b.winner : a.winner;
  const auto ratio = worst_time_ratio(older, newer);
  const bool older_serves = ratio && *ratio * kClearlyFaster < 1;
  return a_is_newer != older_serves;
}

}  // namespace attune
