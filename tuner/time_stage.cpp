#include "tuner/time_stage.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tuner/select.h"
#include "tuner/timestamp.h"

namespace attune {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct RangeState {
  KvRange range;
  Problem problem;                      // of this range
  std::set<int> lengths;                // what is measured for its points
  std::map<std::size_t, double> alive;  // candidate index: worst regret so far
  std::optional<std::size_t> default_idx;
  bool complete = true;
};

class TimeRun {
 public:
  explicit TimeRun(const TimeRequest& request)
      : request_(request), times_(request.candidates.size()) {
    for (std::size_t r = 0; r < request.ranges.size(); ++r) {
      RangeState state{request.ranges[r], request.problem, {}, {}, {}, true};
      state.problem.kv = request.ranges[r];
      for (const int point : kv_points(state.range)) {
        state.lengths.insert(equivalent_kv_len(request.problem, point));
      }
      for (std::size_t i = 0; i < request.candidates.size(); ++i) {
        state.alive[i] = 0;
        if (request.candidates[i] == request.defaults[r]) state.default_idx = i;
      }
      ranges_.push_back(std::move(state));
    }
  }

  std::vector<TimedRange> run() {
    first_pass();
    std::vector<TimedRange> results;
    for (RangeState& range : ranges_) {
      if (range.complete) {
        rematch(range);
      } else if (!request_.interrupted()) {
        finish_leader(range);
      }
      results.push_back(result_of(range));
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
      const std::vector<std::size_t> order = participants(length);
      const std::size_t total = num_measured_ + order.size() * lengths_left--;
      for (const std::size_t idx : order) {
        if (request_.stop()) return mark_incomplete();
        const double abandon_us = best_us == kInfinity ? 0 : best_us * kAbandonFactor;
        const auto timing = measure(idx, length,
                                    {.min_samples = kFirstPassMinSamples,
                                     .max_samples = kFirstPassMaxSamples,
                                     .abandon_above_us = abandon_us});
        ++num_measured_;
        if (request_.progress) request_.progress(request_.candidates[idx], num_measured_, total);
        if (timing) best_us = std::min(best_us, timing->median_us);
      }
      for (RangeState& range : ranges_) {
        if (range.lengths.count(length) > 0) drop_poor(&range, length, best_us);
      }
    }
  }

  // Those still in some range that has this length; defaults and leaders first, so that a bound on
  // the time is there early.
  std::vector<std::size_t> participants(int length) const {
    std::map<std::size_t, double> regrets;
    for (const RangeState& range : ranges_) {
      if (range.lengths.count(length) == 0) continue;
      for (const auto& [idx, regret] : range.alive) {
        if (failed_.count(idx) > 0) continue;  // at a length that this range lacks
        const double rank = range.default_idx == idx ? -1 : regret;
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

  void drop_poor(RangeState* range, int length, double best_us) {
    std::erase_if(range->alive, [&](const auto& entry) { return failed_.count(entry.first) > 0; });
    double least = kInfinity;
    for (auto& [idx, regret] : range->alive) {
      regret = std::max(regret, times_[idx].at(length).median_us / best_us - 1);
      least = std::min(least, regret);
    }
    std::erase_if(range->alive, [&](const auto& entry) {
      return entry.second > least + kDropRegret && entry.first != range->default_idx;
    });
  }

  void mark_incomplete() {
    for (RangeState& range : ranges_) range.complete = has_all_lengths(range);
  }
  bool has_all_lengths(const RangeState& range) const {
    return std::all_of(range.alive.begin(), range.alive.end(), [&](const auto& entry) {
      return failed_.count(entry.first) > 0 || is_timed(entry.first, range);
    });
  }
  bool is_timed(std::size_t idx, const RangeState& range) const {
    return std::all_of(range.lengths.begin(), range.lengths.end(),
                       [&](int length) { return times_[idx].count(length) > 0; });
  }

  // Out of time: the best candidate so far and the default get the points they lack.
  void finish_leader(const RangeState& range) {
    std::optional<std::size_t> leader;
    const auto rank = [&](std::size_t idx) {
      const int longest = *range.lengths.rbegin();
      const auto time = times_[idx].find(longest);
      return std::make_pair(range.alive.at(idx),
                            time == times_[idx].end() ? kInfinity : time->second.median_us);
    };
    for (const auto& [idx, regret] : range.alive) {
      if (failed_.count(idx) > 0 || times_[idx].empty()) continue;
      if (!leader || rank(idx) < rank(*leader)) leader = idx;
    }
    if (!leader) return;
    for (const std::size_t idx : {*leader, range.default_idx.value_or(*leader)}) {
      for (const int length : range.lengths) {
        if (request_.interrupted()) return;
        if (times_[idx].count(length) == 0 && failed_.count(idx) == 0) {
          measure(idx, length, {.min_samples = 1, .max_samples = kFirstPassMinSamples});
        }
      }
    }
  }

  // A winner has to have won a rematch; one that leads only by its first numbers gets one too.
  void rematch(RangeState& range) {
    std::set<std::size_t> finalists = leaders(range);
    while (!finalists.empty()) {
      if (finalists.size() > 1) play(range, finalists);
      const auto selection = select_winner(range.problem, measurements_of(result_of(range), {}));
      if (!selection || !range.complete) return;
      const std::size_t winner = idx_of(selection->winner);
      if (finalists.size() <= 1 || rematched_.count({winner, *range.lengths.rbegin()}) > 0) return;
      finalists = {winner};
      if (selection->runner_up) finalists.insert(idx_of(*selection->runner_up));
    }
  }

  // The candidates of least worst regret, and the default.
  std::set<std::size_t> leaders(const RangeState& range) const {
    std::vector<std::pair<double, std::size_t>> order;
    for (const auto& [idx, regret] : range.alive) {
      if (failed_.count(idx) == 0 && is_timed(idx, range)) order.emplace_back(regret, idx);
    }
    std::sort(order.begin(), order.end());
    std::set<std::size_t> finalists;
    for (std::size_t i = 0; i < order.size() && i < kNumFinalists; ++i) {
      finalists.insert(order[i].second);
    }
    const auto idx = range.default_idx;
    if (idx && failed_.count(*idx) == 0 && is_timed(*idx, range)) finalists.insert(*idx);
    return finalists;
  }

  // A B C A B C at every point; these samples replace the earlier ones.
  void play(RangeState& range, const std::set<std::size_t>& finalists) {
    for (const int length : range.lengths) {
      const bool played = std::all_of(finalists.begin(), finalists.end(), [&](std::size_t idx) {
        return rematched_.count({idx, length}) > 0;
      });
      if (played) continue;
      std::map<std::size_t, std::vector<double>> samples;
      for (int round = 0; round < kRematchRounds; ++round) {
        for (const std::size_t idx : finalists) {
          if (request_.stop()) {
            range.complete = false;
            return;
          }
          if (failed_.count(idx) > 0) continue;
          const auto timing =
              request_.measure(request_.candidates[idx], length,
                               {.min_samples = kRematchSamples, .max_samples = kRematchSamples});
          if (!timing) {
            fail(idx);
            continue;
          }
          auto& all = samples[idx];
          all.insert(all.end(), timing->samples_us.begin(), timing->samples_us.end());
        }
      }
      for (auto& [idx, all] : samples) {
        if (failed_.count(idx) > 0) continue;
        times_[idx][length] = summarize(std::move(all));
        rematched_.insert({idx, length});
      }
    }
  }

  std::optional<Timing> measure(std::size_t idx, int length, const TimerOptions& options) {
    auto timing = request_.measure(request_.candidates[idx], length, options);
    if (timing) {
      times_[idx][length] = *timing;
    } else {
      fail(idx);
    }
    return timing;
  }
  void fail(std::size_t idx) {
    failed_.insert(idx);
    times_[idx].clear();
  }

  std::size_t idx_of(const Candidate& candidate) const {
    const auto it = std::find(request_.candidates.begin(), request_.candidates.end(), candidate);
    return static_cast<std::size_t>(it - request_.candidates.begin());
  }

  TimedRange result_of(const RangeState& range) const {
    TimedRange result{range.range, {}, range.complete};
    for (std::size_t idx = 0; idx < times_.size(); ++idx) {
      TimedCandidate one{request_.candidates[idx], {}};
      for (const int point : kv_points(range.range)) {
        const auto time = times_[idx].find(equivalent_kv_len(request_.problem, point));
        if (time != times_[idx].end()) one.points.emplace_back(point, time->second);
      }
      if (!one.points.empty()) result.timed.push_back(std::move(one));
    }
    return result;
  }

  const TimeRequest& request_;
  std::vector<RangeState> ranges_;
  std::vector<std::map<int, Timing>> times_;  // by candidate index, by kv_len measured at
  std::set<std::size_t> failed_;
  std::set<std::pair<std::size_t, int>> rematched_;
  std::size_t num_measured_ = 0;
};

}  // namespace

std::vector<TimedRange> time_candidates(const TimeRequest& request) {
  return TimeRun(request).run();
}

std::vector<CandidateMeasurements> measurements_of(const TimedRange& range,
                                                   const std::string& driver_version) {
  const std::string now = utc_timestamp();
  std::vector<CandidateMeasurements> all;
  for (const TimedCandidate& timed : range.timed) {
    CandidateMeasurements one{timed.candidate, {}};
    for (const auto& [kv_len, timing] : timed.points) {
      one.points.push_back({kv_len, timing.median_us, timing.spread_us, timing.num_samples,
                            kTimingMethod, driver_version, now});
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace attune
