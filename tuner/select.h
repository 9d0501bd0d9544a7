// Measurements to winners: pure functions.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "cache/records.h"
#include "cache/tune_store.h"

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

// A winner serves before a more recent one of another family when it is faster by this at every
// point: the more recent tune may have had that family switched off. Less is noise between tunes.
constexpr double kClearlyFaster = 1.05;

// Which of two winners of one problem serves it; those of different families are stored apart.
// Exact before nearest, then the more recent, but see kClearlyFaster.
bool serves_better(const WinnerHit& a, const WinnerHit& b);

}  // namespace attune
