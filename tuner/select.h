// Measurements to winners: pure functions.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "cache/records.h"

namespace attune {

// The kv_len values at which a range is judged: the powers of two in it, and its end.
std::vector<int> kv_points(const KvRange& range);

// The worst regret of every candidate that was measured at all `points`: time / best time - 1,
// where the best is over everything measured at that point.
std::map<Candidate, double> worst_regrets(const std::vector<CandidateMeasurements>& measured,
                                          const std::vector<int>& points);

struct Selection {
  Candidate winner;
  double worst_regret = 0;
  std::optional<Candidate> runner_up;
  double runner_up_regret = 0;
};

// Candidates within this much of the best worst-case regret are tied: fewer splits, then less
// shared memory, then the text form decide.
constexpr double kTieRegret = 0.01;

// Picks the candidate whose time at its worst point is least above the best time there. Candidates
// without a measurement at every point of `range` do not take part. Empty when none has them all.
std::optional<Selection> select_winner(const Problem& problem,
                                       const std::vector<CandidateMeasurements>& measured);

}  // namespace attune
