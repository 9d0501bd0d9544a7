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

// Time lost is counted over the best time at its point, but over no less than this, or the best time
// at the longest point where that is less: among short times equal losses in microseconds count
// alike. Below it attention is a small part of a layer's step, and 0.3 us at one key would otherwise
// outweigh 5% at a hundred thousand.
constexpr double kNoticedUs = 20;
double counted_us(double best_us, double longest_best_us);

// The worst regret of every candidate that was measured at all `points`, which ascend: time lost over
// what it is counted over. The best is over everything measured at that point.
std::map<Candidate, double> worst_regrets(const std::vector<CandidateMeasurements>& measured,
                                          const std::vector<int>& points);

// How much longer the default takes than a candidate, minus 1: the median over pairs of samples that
// were taken in the same round, each averaged over the points. Of the graphs that were played it is
// below `low` with a probability of kProofRisk at most.
struct Gain {
  double low = 0;
  double median = 0;
};
constexpr double kProofRisk = 0.001;

// What the rematch adds to the measurements.
struct Rematch {
  std::vector<Candidate> finalists;    // empty: there was none, every candidate is one
  std::optional<Candidate> defending;  // the default, where it was timed; always a finalist
  std::map<Candidate, Gain> gains;     // over the default; of other finalists
};

struct Selection {
  Candidate winner;
  double worst_regret = 0;
  Gain over_default;  // 0 when the winner is the default or it has no time
  std::optional<Candidate> runner_up;
  double runner_up_regret = 0;
};

// Candidates are tied with the one of least worst regret when theirs is above it by no more than
// this. Among the tied the default stays, then fewer splits, less shared memory and the text decide.
constexpr double kTieRegret = 0.01;

// Picks the finalist whose worst regret over the range is least. Candidates without a measurement at
// every point of `range` do not take part. Nobody replaces the default but with a proven gain: a
// positive `low`. Empty when no finalist has all points, or the default has not.
std::optional<Selection> select_winner(const Problem& problem,
                                       const std::vector<CandidateMeasurements>& measured,
                                       const Rematch& rematch = {});

// A winner serves before a more recent one of another family when it is faster by this at every
// point: the more recent tune may have had that family switched off. Less is noise between tunes.
constexpr double kClearlyFaster = 1.05;

// Which of two winners of one problem serves it; those of different families are stored apart.
// Exact before nearest, then the more recent, but see kClearlyFaster.
bool serves_better(const WinnerHit& a, const WinnerHit& b);

}  // namespace attune
