// Which tuned problems may answer for an asked one: a pure decision.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cache/records.h"

namespace attune {

struct ProblemMatch {
  std::size_t tuned_idx;
  Match match;  // kExact or kNearestShape
};

// The tuned problems that may answer for `asked`, the best first:
//   1. the same problem,
//   2. the same but for a kv range that contains the asked one; the tightest first,
//   3. for verify also with seqlen_q above the asked one and at most twice of it; the smallest
//      first, then the tightest.
std::vector<ProblemMatch> rank_matches(const Problem& asked, std::span<const Problem> tuned);

}  // namespace attune
