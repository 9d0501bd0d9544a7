#include "cache/nearest.h"

#include <string>

#include <gtest/gtest.h>

namespace attune {
namespace {

const std::string kRest = "/h32x16/d256/w1024/ring/bf16";

Problem verify_problem(int seqlen_q, const std::string& kv) {
  return Problem::parse("verify/b1/q" + std::to_string(seqlen_q) + "/kv" + kv + kRest);
}

// "<idx>" or "<idx>~" for a nearest shape, in the order of preference.
std::string ranked(const Problem& asked, const std::vector<Problem>& tuned) {
  std::string text;
  for (const ProblemMatch& match : rank_matches(asked, tuned)) {
    text += std::to_string(match.tuned_idx) + (match.match == Match::kExact ? " " : "~ ");
  }
  return text;
}

TEST(RankMatches, FindsNothingAmongNothing) {
  EXPECT_EQ(ranked(verify_problem(8, "1-4096"), {}), "");
}

TEST(RankMatches, PrefersTheExactProblem) {
  const Problem asked = verify_problem(8, "64-128");
  EXPECT_EQ(ranked(asked, {verify_problem(8, "64-129"), asked, verify_problem(8, "1-4096")}),
            "1 0~ 2~ ");
}

TEST(RankMatches, TakesTheTightestRangeThatContainsTheAskedOne) {
  const Problem asked = verify_problem(8, "100-200");
  const std::vector<Problem> tuned = {verify_problem(8, "1-4096"), verify_problem(8, "100-199"),
                                      verify_problem(8, "101-200"), verify_problem(8, "64-256"),
                                      verify_problem(8, "100-201")};
  EXPECT_EQ(ranked(asked, tuned), "4~ 3~ 0~ ");
}

TEST(RankMatches, TakesTheSmallestSeqlenQUpToTwiceTheAskedOne) {
  const Problem asked = verify_problem(4, "1-128");
  const std::vector<Problem> tuned = {verify_problem(8, "1-128"), verify_problem(5, "1-4096"),
                                      verify_problem(9, "1-128"), verify_problem(3, "1-128"),
                                      verify_problem(5, "1-256"), verify_problem(5, "2-128")};
  EXPECT_EQ(ranked(asked, tuned), "4~ 1~ 0~ ");
}

TEST(RankMatches, PrefersAWiderRangeOverAnotherSeqlenQ) {
  const Problem asked = verify_problem(4, "1-128");
  EXPECT_EQ(ranked(asked, {verify_problem(5, "1-128"), verify_problem(4, "1-131072")}), "1~ 0~ ");
}

TEST(RankMatches, KeepsDecodeAndVerifyApart) {
  const Problem decode = Problem::parse("decode/b1/q1/kv1-128" + kRest);
  EXPECT_EQ(ranked(decode, {verify_problem(2, "1-128")}), "");
  EXPECT_EQ(ranked(verify_problem(2, "1-128"), {decode}), "");
}

TEST(RankMatches, DemandsEveryOtherFieldToBeEqual) {
  const Problem asked = verify_problem(8, "1-128");
  std::vector<Problem> tuned(8, verify_problem(8, "1-4096"));
  tuned[0].batch = 2;
  tuned[1].num_q_heads = 64;
  tuned[2].num_kv_heads = 32;
  tuned[3].head_dim = 512;
  tuned[4].window = 512;
  tuned[5].causal = false;
  tuned[6].softcap = true;
  tuned[7].kv_layout = KvLayout::kContiguous;
  EXPECT_EQ(ranked(asked, tuned), "");
}

}  // namespace
}  // namespace attune
