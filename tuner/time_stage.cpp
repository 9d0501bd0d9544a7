#include "tuner/time_stage.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "tuner/rematch_run.h"
#include "tuner/timestamp.h"

namespace attune {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The worst regret so far, and what it may be within its times' intervals.
struct Regret {
  double low = 0, middle = 0, high = 0;
};

struct RangeState {
  KvRange range;
  Problem problem;                      // of this range
  std::set<int> lengths;                // what is measured for its points
  std::map<std::size_t, Regret> alive;  // by candidate index
  std::optional<std::size_t> default_idx;
  double longest_best_us = 0;  // the best time at its longest point; 0: not timed yet
  bool complete = true;
};

class TimeRun {
 public:
  explicit TimeRun(const TimeRequest& request) : request_(request), plays_(request, &table_) {
    table_.times.resize(request.candidates.size());
    for (std::size_t r = 0; r < request.ranges.size(); ++r) {
      RangeState state{request.ranges[r], request.problem, {}, {}, {}, 0, true};
      state.problem.kv = request.ranges[r];
      for (const int point : kv_points(state.range)) {
        state.lengths.insert(equivalent_kv_len(request.problem, point));
      }
      for (std::size_t i = 0; i < request.candidates.size(); ++i) {
        state.alive[i] = {};
        if (request.candidates[i] == request.defaults[r]) state.default_idx = i;
      }
      ranges_.push_back(std::move(state));
    }
  }

  std::vector<TimedRange> run() {
    first_pass();
    std::vector<TimedRange> results;
    for (RangeState& range : ranges_) {
      std::set<std::size_t> finalists;
      if (range.complete) {
        finalists = rematch(&range);
        if (range.complete && request_.plan.plays_again) prove_leader(&range, finalists);
      }
      if (!range.complete) finalists = finish_leader(range);
      results.push_back(result_of(range));
      results.back().rematch = rematch_of(range, finalists);
    }
    return results;
  }

 private:
  // From the longest kv_len to the shortest: the long ones tell the candidates apart best.
  void first_pass() {
    std::set<int, std::greater<>> lengths;
    for (const RangeState& range : ranges_) {
      lengths.insert(range.lengths.begin(), range.lengths.end());
    }
    std::size_t lengths_left = lengths.size();
    for (const int length : lengths) {
      double best_us = kInfinity;
      std::vector<std::size_t> order = participants(length);
      std::erase_if(order, [&](std::size_t idx) { return recall(idx, length, &best_us); });
      const std::size_t total = num_measured_ + order.size() * lengths_left--;
      for (const std::size_t idx : order) {
        if (request_.stop()) return mark_incomplete();
        const double abandon_us = best_us == kInfinity ? 0 : best_us * kAbandonFactor;
        const auto timing = measure(idx, length,
                                    {.min_samples = request_.plan.first_min_samples,
                                     .max_samples = request_.plan.first_max_samples,
                                     .abandon_above_us = abandon_us});
        ++num_measured_;
        if (request_.progress) request_.progress(request_.candidates[idx], num_measured_, total);
        if (timing) best_us = std::min(best_us, timing->median_us);
      }
      if (request_.interrupted()) return mark_incomplete();  // perhaps in the last one
      for (RangeState& range : ranges_) {
        if (range.lengths.count(length) > 0) drop_poor(&range, length);
      }
    }
  }

  // Whether an earlier run has the time.
  bool recall(std::size_t idx, int length, double* best_us) {
    if (!request_.known) return false;
    const auto timing = request_.known(request_.candidates[idx], length);
    if (!timing) return false;
    table_.times[idx][length] = *timing;
    *best_us = std::min(*best_us, timing->median_us);
    return true;
  }

  // Those still in some range that has this length; defaults and leaders first, so that a bound on
  // the time is there early.
  std::vector<std::size_t> participants(int length) const {
    std::map<std::size_t, double> regrets;
    for (const RangeState& range : ranges_) {
      if (range.lengths.count(length) == 0) continue;
      for (const auto& [idx, regret] : range.alive) {
        if (table_.failed.count(idx) > 0) continue;  // at a length that this range lacks
        const double rank = range.default_idx == idx ? -1 : regret.middle;
        const auto [it, is_first] = regrets.try_emplace(idx, rank);
        if (!is_first) it->second = std::min(it->second, rank);
      }
    }
    std::vector<std::size_t> order;
    for (const auto& [idx, regret] : regrets) order.push_back(idx);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return regrets.at(a) < regrets.at(b); });
    return order;
  }

  void drop_poor(RangeState* range, int length) {
    std::erase_if(range->alive,
                  [&](const auto& entry) { return table_.failed.count(entry.first) > 0; });
    const Timing* best = nullptr;
    for (const auto& [idx, regret] : range->alive) {
      const Timing& timing = table_.times[idx].at(length);
      if (best == nullptr || timing.median_us < best->median_us) best = &timing;
    }
    if (best == nullptr) return;
    if (range->longest_best_us == 0) range->longest_best_us = best->median_us;
    const double over_us = counted_us(best->median_us, range->longest_best_us);
    double leader_high = kInfinity;
    for (auto& [idx, regret] : range->alive) {
      const Timing& timing = table_.times[idx].at(length);
      const Interval& in = timing.median_in;
      regret.low = std::max(regret.low, (in.low - best->median_in.high) / over_us);
      regret.middle = std::max(regret.middle, (timing.median_us - best->median_us) / over_us);
      regret.high = std::max(regret.high, (in.high - best->median_in.low) / over_us);
      leader_high = std::min(leader_high, regret.high);
    }
    std::erase_if(range->alive, [&](const auto& entry) {
      return entry.second.low > leader_high + request_.plan.drop_regret &&
             entry.first != range->default_idx;
    });
  }

  void mark_incomplete() {
    for (RangeState& range : ranges_) range.complete = has_all_lengths(range);
  }
  bool has_all_lengths(const RangeState& range) const {
    return std::all_of(range.alive.begin(), range.alive.end(), [&](const auto& entry) {
      return table_.failed.count(entry.first) > 0 || is_timed(entry.first, range);
    });
  }
  bool is_timed(std::size_t idx, const RangeState& range) const {
    return std::all_of(range.lengths.begin(), range.lengths.end(),
                       [&](int length) { return table_.times[idx].count(length) > 0; });
  }

  // Out of time: the best candidate so far plays the default, whatever the budget. Empty when
  // interrupted or nobody can be timed.
  std::set<std::size_t> finish_leader(const RangeState& range) {
    if (request_.interrupted()) return {};
    while (const auto leader = leader_so_far(range)) {
      const bool has_default = range.default_idx && table_.failed.count(*range.default_idx) == 0;
      const std::size_t base = has_default ? *range.default_idx : *leader;
      if (base == *leader) {
        take_points(base, range);
      } else if (plays_.prove(base, *leader, range.lengths, request_.interrupted)) {
        plays_.take_numbers({base, *leader}, range.lengths);
      }
      if (request_.interrupted() || request_.dropped()) return {};
      if (table_.failed.count(base) + table_.failed.count(*leader) == 0) return {base, *leader};
    }
    return {};
  }

  // By the worst regret over the lengths that are timed, those of other ranges where none of this
  // one's is.
  std::optional<std::size_t> leader_so_far(const RangeState& range) const {
    std::map<int, double> best_us, of_range;
    for (const auto& times : table_.times) {
      for (const auto& [length, timing] : times) {
        double& best = best_us.try_emplace(length, kInfinity).first->second;
        best = std::min(best, timing.median_us);
        if (range.lengths.count(length) > 0) of_range[length] = best;
      }
    }
    if (!of_range.empty()) best_us = std::move(of_range);
    std::optional<std::size_t> leader;
    std::pair<double, std::size_t> least;  // regret, lengths that it lacks
    for (const auto& [idx, regret] : range.alive) {
      std::pair<double, std::size_t> one = {0, best_us.size()};
      for (const auto& [length, best] : best_us) {
        const auto time = table_.times[idx].find(length);
        if (time == table_.times[idx].end()) continue;
        const double over_us = counted_us(best, best_us.rbegin()->second);
        one.first = std::max(one.first, (time->second.median_us - best) / over_us);
        --one.second;
      }
      if (one.second == best_us.size()) continue;  // failed ones are among them
      if (!leader || one < least) std::tie(leader, least) = std::tie(idx, one);
    }
    return leader;
  }

  // What a candidate lacks of the range.
  void take_points(std::size_t idx, const RangeState& range) {
    for (const int length : range.lengths) {
      if (request_.interrupted()) return;
      if (table_.times[idx].count(length) > 0 || table_.failed.count(idx) > 0) continue;
      measure(idx, length,
              {.min_samples = request_.plan.first_min_samples,
               .max_samples = request_.plan.first_max_samples});
    }
  }

  // Gives back the finalists. Who leads by first numbers only has to play as well.
  std::set<std::size_t> rematch(RangeState* range) {
    std::set<std::size_t> finalists = leaders(*range);
    while (finalists.size() > 1) {
      range->complete = plays_.play(finalists, range->lengths, range->default_idx);
      if (!range->complete) break;
      const auto regrets = worst_regrets(measurements_of(result_of(*range), {}), points_of(*range));
      if (regrets.empty()) break;
      const auto leader =
          std::min_element(regrets.begin(), regrets.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      const std::size_t idx = idx_of(leader->first);
      if (plays_.has_played(idx, range->lengths)) break;
      std::erase_if(finalists, [&](std::size_t one) { return table_.failed.count(one) > 0; });
      finalists.insert(idx);
    }
    return finalists;
  }

  // Who would win by the times, but has no proof against the default, plays it once more, so that a
  // default that loses a little does not stay for want of pairs.
  void prove_leader(RangeState* range, const std::set<std::size_t>& finalists) {
    const Rematch seen = rematch_of(*range, finalists);
    Rematch hopeful = seen;
    for (auto& [candidate, gain] : hopeful.gains) gain.low = 1;
    const auto leader =
        select_winner(range->problem, measurements_of(result_of(*range), {}), hopeful);
    if (!leader) return;
    const auto gain = seen.gains.find(leader->winner);
    if (gain == seen.gains.end() || gain->second.low > 0) return;
    range->complete =
        plays_.prove(*range->default_idx, idx_of(leader->winner), range->lengths, request_.stop);
  }

  // The candidates of least worst regret whose times leave open that they are the best, no less than
  // two where there are two, and the default.
  std::set<std::size_t> leaders(const RangeState& range) const {
    std::vector<std::pair<double, std::size_t>> order;
    double leader_high = kInfinity;
    for (const auto& [idx, regret] : range.alive) {
      if (table_.failed.count(idx) > 0 || !is_timed(idx, range)) continue;
      order.emplace_back(regret.middle, idx);
      leader_high = std::min(leader_high, regret.high);
    }
    std::sort(order.begin(), order.end());
    std::set<std::size_t> finalists;
    for (const auto& [regret, idx] : order) {
      if (finalists.size() == request_.plan.num_finalists) break;
      const bool is_open = range.alive.at(idx).low <= leader_high + kTieRegret;
      if (is_open || finalists.size() < 2) finalists.insert(idx);
    }
    const auto idx = range.default_idx;
    if (idx && table_.failed.count(*idx) == 0 && is_timed(*idx, range)) finalists.insert(*idx);
    return finalists;
  }

  // What the finalists' samples say about them and the default. Who played at all lengths, in other
  // ranges, is one too; a finalist that had nobody to play with is one nevertheless.
  Rematch rematch_of(const RangeState& range, const std::set<std::size_t>& finalists) const {
    Rematch rematch;
    if (range.default_idx && table_.failed.count(*range.default_idx) == 0) {
      rematch.defending = request_.candidates[*range.default_idx];
    }
    for (std::size_t idx = 0; idx < request_.candidates.size(); ++idx) {
      if (table_.failed.count(idx) > 0) continue;
      if (finalists.count(idx) == 0 && !plays_.has_played(idx, range.lengths)) continue;
      rematch.finalists.push_back(request_.candidates[idx]);
      if (!rematch.defending || idx == range.default_idx) continue;
      rematch.gains[request_.candidates[idx]] = plays_.gain(*range.default_idx, idx, range.lengths);
    }
    return rematch;
  }

  std::optional<Timing> measure(std::size_t idx, int length, const TimerOptions& options) {
    auto timing = request_.measure(request_.candidates[idx], length, options);
    if (timing) {
      table_.times[idx][length] = *timing;
    } else if (!request_.dropped()) {
      table_.fail(idx);
    }
    return timing;
  }

  std::size_t idx_of(const Candidate& candidate) const {
    const auto it = std::find(request_.candidates.begin(), request_.candidates.end(), candidate);
    return static_cast<std::size_t>(it - request_.candidates.begin());
  }

  std::vector<int> points_of(const RangeState& range) const { return kv_points(range.range); }

  TimedRange result_of(const RangeState& range) const {
    TimedRange result{range.range, {}, {}, range.complete};
    for (std::size_t idx = 0; idx < table_.times.size(); ++idx) {
      TimedCandidate one{request_.candidates[idx], {}};
      for (const int point : kv_points(range.range)) {
        const auto time = table_.times[idx].find(equivalent_kv_len(request_.problem, point));
        if (time != table_.times[idx].end()) one.points.emplace_back(point, time->second);
      }
      if (!one.points.empty()) result.timed.push_back(std::move(one));
    }
    return result;
  }

  const TimeRequest& request_;
  std::vector<RangeState> ranges_;
  TimeTable table_;
  RematchRun plays_;
  std::size_t num_measured_ = 0;
};

}  // namespace

std::vector<TimedRange> time_candidates(const TimeRequest& request) {
  return TimeRun(request).run();
}

std::vector<CandidateMeasurements> measurements_of(const TimedRange& range,
                                                   const std::string& driver_version) {
  std::vector<CandidateMeasurements> all;
  for (const TimedCandidate& timed : range.timed) {
    CandidateMeasurements one{timed.candidate, {}};
    for (const auto& [kv_len, timing] : timed.points) {
      one.points.push_back(measurement_of(kv_len, timing, driver_version));
    }
    all.push_back(std::move(one));
  }
  return all;
}

Measurement measurement_of(int kv_len, const Timing& timing, const std::string& driver_version) {
  return {.kv_len = kv_len,
          .median_us = timing.median_us,
          .spread_us = timing.spread_us,
          .low_us = timing.median_in.low,
          .high_us = timing.median_in.high,
          .num_samples = timing.num_samples,
          .num_dropped = timing.num_dropped,
          .sm_clock_mhz = timing.conditions.sm_clock_mhz,
          .memory_clock_mhz = timing.conditions.memory_clock_mhz,
          .throttle = throttle_text(timing.conditions.throttle),
          .provisional = timing.conditions.provisional(),
          .method = kTimingMethod,
          .driver_version = driver_version,
          .created_at = utc_timestamp()};
}

std::optional<Timing> timing_of(const Measurement& measurement, const std::string& driver_version) {
  if (measurement.method != kTimingMethod || measurement.driver_version != driver_version ||
      measurement.provisional || measurement.median_us <= 0) {
    return std::nullopt;
  }
  Timing timing;
  timing.median_us = measurement.median_us;
  timing.spread_us = measurement.spread_us;
  timing.median_in = {measurement.low_us, measurement.high_us};
  timing.num_samples = measurement.num_samples;
  timing.num_dropped = measurement.num_dropped;
  timing.conditions.sm_clock_mhz = measurement.sm_clock_mhz;
  timing.conditions.memory_clock_mhz = measurement.memory_clock_mhz;
  return timing;
}

}  // namespace attune
