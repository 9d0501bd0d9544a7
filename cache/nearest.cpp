#include "cache/nearest.h"

#include <algorithm>
#include <tuple>

namespace attune {
namespace {

bool may_answer(const Problem& asked, const Problem& tuned) {
  // Whatever is not named here has to be equal, fields added later included.
  Problem same = tuned;
  same.kv = asked.kv;
  if (asked.op == Op::kVerify && tuned.seqlen_q > asked.seqlen_q &&
      tuned.seqlen_q <= 2 * asked.seqlen_q) {
    same.seqlen_q = asked.seqlen_q;
  }
  return same == asked && tuned.kv.contains(asked.kv);
}

}  // namespace

std::vector<ProblemMatch> rank_matches(const Problem& asked, std::span<const Problem> tuned) {
  std::vector<ProblemMatch> matches;
  for (std::size_t idx = 0; idx < tuned.size(); ++idx) {
    if (!may_answer(asked, tuned[idx])) continue;
    matches.push_back({idx, tuned[idx] == asked ? Match::kExact : Match::kNearestShape});
  }
  const auto order = [&](const ProblemMatch& match) {
    const Problem& problem = tuned[match.tuned_idx];
    return std::tuple(problem.seqlen_q, problem.kv.max - problem.kv.min, problem.kv.max);
  };
  std::stable_sort(matches.begin(), matches.end(),
                   [&](const auto& a, const auto& b) { return order(a) < order(b); });
  return matches;
}

}  // namespace attune
