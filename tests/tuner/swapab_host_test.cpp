// The swapab family on the host device, against the reference in double and with all accesses
// checked: one to five query tokens in every layout, whose splits a cluster or the combine merges.
#include <algorithm>

#include "tests/support/family_on_host.h"

namespace attune {
namespace {

class SwapAbHost : public FamilyOnHost {
 protected:
  SwapAbHost() : FamilyOnHost("swapab") {}

  // Keys that fill every slot of every stream `times` times.
  int keys_of_slots(int times) const {
    const int streams = stream_grid(config_, problem_.head_dim).streams;
    return times * streams * config_.num_stages * config_.block_n;
  }
};

// Lengths at which a tile ends, is one short of it or one past it, and around the window and the
// end of the ring; no key at all; and more query tokens than keys. What lies behind the keys, and
// before the window, is NaN.
TEST_P(SwapAbHost, IsRightAroundTheEdgesOfTiles) {
  std::vector<int> kv_lens = {0, 1, problem_.seqlen_q - 1, problem_.seqlen_q + 1, 15, 16, 17, 33};
  kv_lens.push_back(keys_of_slots(1) - 1);
  kv_lens.push_back(keys_of_slots(1) + config_.block_n + 3);
  if (problem_.window > 0) {
    for (const int more : {-1, 0, 1, problem_.seqlen_q, 40}) {
      kv_lens.push_back(problem_.window + more);
    }
  }
  if (problem_.kv_layout == KvLayout::kRing) {
    // The ring begins again at the end of a tile, inside of one, in the first and in the last.
    const int ring = min_ring_capacity(problem_);
    for (const int more : {-1, 0, 1, 9, 17}) kv_lens.push_back(ring + more);
    kv_lens.push_back(3 * ring + 25);
  }
  const std::vector<VerifyCase> cases = {verify_case(problem_, 1, "edges", kv_lens)};
  EXPECT_EQ(outcome_on({}, cases, {1, 3}), "right");
}

// Splits that a cluster merges where they are a power of two up to 16, else the combine. Some of
// them have no keys, some entries of the batch no more than one split.
TEST_P(SwapAbHost, IsRightInAnyNumberOfSplits) {
  for (const int split_cap : {2, 4, 16}) {
    const LaunchPlan plan = plan_launch(problem_, candidate(split_cap));
    const bool clusters = plan.num_row_blocks == 1;
    EXPECT_EQ(plan.split.cluster.x, clusters ? unsigned(split_cap) : 1u);
    EXPECT_EQ(plan.needs_combine, !clusters);
  }
  for (const int split_cap : {3, 5}) {
    EXPECT_TRUE(plan_launch(problem_, candidate(split_cap)).needs_combine);
  }
  const std::vector<VerifyCase> cases = {
      verify_case(problem_, 1, "few", {0, 1, 17}),
      verify_case(problem_, 1, "many", {16 * config_.block_n - 1})};
  EXPECT_EQ(outcome_on({}, cases, {2, 4, 16, 3, 5}), "right");
}

// Sequences that share the CTAs: as many splits of each as its length demands.
TEST_P(SwapAbHost, IsRightWhereSequencesShareSlots) {
  if (problem_.seqlen_q == 1 || problem_.kv_layout != KvLayout::kContiguous) {
    const std::vector<VerifyCase> cases = {
        verify_case(problem_, 1, "shared", {0, 17, 5 * config_.block_n, 1, 200})};
    EXPECT_EQ(outcome_on(checked_target(), cases, {3}, true), "right");
  }
}

// Slots that are filled three times, and a cluster whose last CTAs have nothing to do.
TEST_P(SwapAbHost, BreaksNoRule) {
  const std::vector<VerifyCase> cases = {
      verify_case(problem_, 1, "slots", {keys_of_slots(2) + 17, 2 * config_.block_n + 1})};
  EXPECT_EQ(outcome_on(checked_target(), cases, {1, 4}), "right");
}

// A stream a warp, or one that two or four warps share; one to four slots of 16 or 32 keys.
INSTANTIATE_TEST_SUITE_P(
    Problems, SwapAbHost,
    testing::Values(
        FamilyProblem{"q1", "decode/b2/q1/kv1-4096/h8x2/d64/contiguous/bf16", "m8n16s2w4"},
        FamilyProblem{"q2_softcap", "verify/b2/q2/kv1-4096/h6x2/d128/softcap/contiguous/bf16",
                      "m16n32s1w4"},
        FamilyProblem{"q4_full", "verify/b2/q4/kv1-4096/h8x2/d128/full/contiguous/bf16",
                      "m16n16s2w8"},
        FamilyProblem{"q5_row_blocks", "verify/b2/q5/kv1-4096/h8x2/d256/contiguous/bf16",
                      "m16n16s1w4"},
        FamilyProblem{"q4_four_row_groups", "verify/b1/q4/kv1-4096/h8x1/d512/contiguous/bf16",
                      "m32n16s2w4"},
        FamilyProblem{"q1_window", "decode/b2/q1/kv1-4096/h4x2/d64/w40/contiguous/bf16",
                      "m8n16s4w4"},
        FamilyProblem{"q1_ring", "decode/b2/q1/kv1-4096/h4x2/d64/w130/ring/bf16", "m8n32s2w4"},
        FamilyProblem{"q5_ring_softcap", "verify/b2/q5/kv1-4096/h4x2/d256/w150/softcap/ring/bf16",
                      "m16n16s2w4"},
        FamilyProblem{"q4_ring_two_row_groups", "verify/b2/q4/kv1-4096/h8x1/d256/w31/ring/bf16",
                      "m32n32s2w4"},
        FamilyProblem{"q2_paged", "verify/b2/q2/kv1-4096/h8x2/d128/p16/paged/bf16", "m8n16s2w4"},
        FamilyProblem{"q5_paged_two_row_groups", "verify/b2/q5/kv1-4096/h6x2/d512/p64/paged/bf16",
                      "m16n16s3w4"},
        FamilyProblem{"q1_unified", "decode/b2/q1/kv1-4096/h8x1/d512/unified/bf16", "m8n16s1w8"},
        FamilyProblem{"q4_unified_softcap", "verify/b1/q4/kv1-4096/h4x1/d512/softcap/unified/bf16",
                      "m16n32s2w4"},
        FamilyProblem{"q2_unified_paged", "verify/b2/q2/kv1-4096/h8x1/d512/p32/unified-paged/bf16",
                      "m16n16s4w4"}),
    name_of_problem);

}  // namespace
}  // namespace attune
