// Candidates that are timed in turn at one length, and what their samples say about each other: pure.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "tuner/select.h"
#include "tuner/timer.h"

namespace attune {

// A comparison at one length is settled, and its rematch over before the last round, when the ratio
// of the times is known to this much either way, or its sign by twice as much.
constexpr double kSettledRatio = 0.005;

// One rematch at one length: the rounds of each finalist that did not fail, by candidate index.
struct Play {
  std::map<std::size_t, std::vector<Timing>> rounds;

  // All rounds of a finalist together.
  Timing total(std::size_t idx) const;
};

// Logarithms of slow / fast for pairs of samples of the same round: what moves both is not in them.
// Of all rematches that both played, the last one first.
std::vector<double> log_ratios(const std::vector<Play>& plays, std::size_t slow, std::size_t fast);

// Such ratios of each length; a pair of each makes one number, as far as all have pairs.
Gain gain_of(const std::vector<std::vector<double>>& ratios);

// Whether more rounds would change little: every finalist's ratio to the default, or else to the
// first, is known well enough, and there are samples enough for a proof.
bool is_settled(const Play& play, const std::optional<std::size_t>& default_idx);

}  // namespace attune
