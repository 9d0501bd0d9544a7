// Which candidate is timed where: a first pass that drops the poor ones, then a rematch of the
// finalists and the default in turn, in as many rounds as the comparison needs. Knows no device; the
// measuring itself is a function of the caller's.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "cache/records.h"
#include "tuner/effort.h"
#include "tuner/select.h"
#include "tuner/timer.h"

namespace attune {

// A time this many times the best one of its point ends after two samples.
constexpr double kAbandonFactor = 3;
struct TimeRequest {
  Problem problem;
  std::vector<KvRange> ranges;
  std::vector<Candidate> defaults;    // of each range; never dropped there
  std::vector<Candidate> candidates;  // admitted ones
  EffortPlan plan = plan_of(Effort::kNormal);
  // Empty when the candidate cannot be timed; it is not asked for again.
  std::function<std::optional<Timing>(const Candidate&, int kv_len, const TimerOptions&)> measure;
  // Whether the last measurement without a time was cut short, which is not the candidate's fault.
  std::function<bool()> dropped = [] { return false; };
  // What an earlier run measured in the same way, to be taken for the first pass; may be empty.
  std::function<std::optional<Timing>(const Candidate&, int kv_len)> known;
  // Polled before every measurement. Once true, only what a decision needs is still measured.
  std::function<bool()> stop;
  // As stop, but nothing at all is measured any more.
  std::function<bool()> interrupted;
  // Called after every measurement of the first pass; `total` shrinks as candidates are dropped.
  std::function<void(const Candidate&, std::size_t done, std::size_t total)> progress;
};

// The points of a range that this candidate was timed at; those beyond a window share their number.
struct TimedCandidate {
  Candidate candidate;
  std::vector<std::pair<int, Timing>> points;  // kv_len ascending
};

struct TimedRange {
  KvRange range;
  std::vector<TimedCandidate> timed;
  Rematch rematch;
  bool complete = true;  // false: stopped before all candidates were compared

  // Cut short it has one where the default was timed, or somebody was taken to the end without it.
  bool has_choice() const {
    return complete || rematch.defending.has_value() || !rematch.finalists.empty();
  }
};

std::vector<TimedRange> time_candidates(const TimeRequest& request);

// The points as the cache stores them.
std::vector<CandidateMeasurements> measurements_of(const TimedRange& range,
                                                   const std::string& driver_version);
Measurement measurement_of(int kv_len, const Timing& timing, const std::string& driver_version);
// The inverse, as far as a first pass needs it; empty unless measured in this way and undisturbed.
std::optional<Timing> timing_of(const Measurement& measurement, const std::string& driver_version);

}  // namespace attune
