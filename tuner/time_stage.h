// Which candidate is timed where: a first pass that drops the poor ones, then a rematch of the
// finalists in turn. Knows no device; the measuring itself is a function of the caller's.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "cache/records.h"
#include "tuner/timer.h"

namespace attune {

// A candidate leaves a range once its worst regret so far is this far above the least one there.
constexpr double kDropRegret = 0.5;
// A time this many times the best one of its point ends after one sample.
constexpr double kAbandonFactor = 3;
// Finalists of a range, and rounds of their rematch.
constexpr std::size_t kNumFinalists = 3;
constexpr int kRematchRounds = 3;
// Samples of the first pass, and of one round of the rematch.
constexpr int kFirstPassMinSamples = 3, kFirstPassMaxSamples = 7;
constexpr int kRematchSamples = 5;

struct TimeRequest {
  Problem problem;
  std::vector<KvRange> ranges;
  std::vector<Candidate> defaults;    // of each range; never dropped there
  std::vector<Candidate> candidates;  // admitted ones
  // Empty when the candidate cannot be timed; it is not asked for again.
  std::function<std::optional<Timing>(const Candidate&, int kv_len, const TimerOptions&)> measure;
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
  bool complete = true;  // false: stopped before all candidates were compared
};

std::vector<TimedRange> time_candidates(const TimeRequest& request);

// The points as the cache stores them.
std::vector<CandidateMeasurements> measurements_of(const TimedRange& range,
                                                   const std::string& driver_version);

}  // namespace attune
