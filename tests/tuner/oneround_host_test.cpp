// The oneround family on the host device, against the reference in double and with all accesses
// checked: one to five query tokens in every layout, whose splits a cluster or the combine merges.
#include "tests/support/family_on_host.h"

namespace attune {
namespace {

class OneRoundHost : public FamilyOnHost {
 protected:
  OneRoundHost() : FamilyOnHost("oneround") {}

  int keys_of_rounds(int rounds) const { return rounds * config_.num_warps * config_.block_n; }
};

// Lengths at which a tile or a round ends, is one short of it or one past it, and around the window
// and the end of the ring; no key at all; more query tokens than keys; and more rounds than slots.
// What lies behind the keys, and before the window, is NaN. Splits that a cluster merges, and that
// the combine does.
TEST_P(OneRoundHost, IsRightAroundTheEdgesOfRounds) {
  const int slots = config_.num_stages;
  std::vector<int> kv_lens = {0, 1, problem_.seqlen_q - 1, problem_.seqlen_q + 1, 15, 16, 33};
  kv_lens.push_back(keys_of_rounds(1) - 1);
  kv_lens.push_back(keys_of_rounds(1) + 1);
  kv_lens.push_back(keys_of_rounds(2 * slots) + config_.block_n + 3);
  if (problem_.kv_layout == KvLayout::kRing) {
    // The ring begins again at the end of a tile, inside of one, in the first and in the last.
    const int ring = min_ring_capacity(problem_);
    for (const int more : {-1, 0, 1, 9, 17}) kv_lens.push_back(ring + more);
    kv_lens.push_back(3 * ring + 25);
  }
  const std::vector<VerifyCase> cases = {verify_case(problem_, 1, "edges", kv_lens)};
  EXPECT_EQ(outcome_on({}, cases, {3, 4}), "right");
}

// Slots that are filled again, some by fewer tiles than there are warps, and a cluster whose last
// CTAs have nothing to do.
TEST_P(OneRoundHost, BreaksNoRule) {
  const int slots = config_.num_stages;
  const std::vector<VerifyCase> cases = {
      verify_case(problem_, 1, "slots", {keys_of_rounds(slots + 1) + 17, config_.block_n + 1})};
  EXPECT_EQ(outcome_on(checked_target(), cases, {1, 4}), "right");
}

// Two to eight warps; one to three slots of 16 or 32 keys; one row tile or two.
INSTANTIATE_TEST_SUITE_P(
    Problems, OneRoundHost,
    testing::Values(
        FamilyProblem{"q1", "decode/b2/q1/kv1-4096/h8x2/d64/contiguous/bf16", "m8n16s2w4"},
        FamilyProblem{"q4_full_softcap",
                      "verify/b2/q4/kv1-4096/h6x2/d128/full/softcap/contiguous/bf16", "m16n32s1w8"},
        FamilyProblem{"q5_row_blocks_window", "verify/b2/q5/kv1-4096/h4x2/d64/w40/contiguous/bf16",
                      "m8n16s3w4"},
        FamilyProblem{"q1_ring", "decode/b2/q1/kv1-4096/h4x2/d64/w130/ring/bf16", "m8n32s1w2"},
        FamilyProblem{"q5_ring", "verify/b2/q5/kv1-4096/h4x2/d256/w150/ring/bf16", "m16n16s2w4"},
        FamilyProblem{"q2_paged", "verify/b2/q2/kv1-4096/h8x2/d128/p16/paged/bf16", "m8n16s1w8"},
        FamilyProblem{"q1_unified", "decode/b1/q1/kv1-4096/h8x1/d512/unified/bf16", "m8n16s1w8"},
        FamilyProblem{"q2_unified_paged", "verify/b1/q2/kv1-4096/h8x1/d512/p32/unified-paged/bf16",
                      "m16n16s2w4"}),
    name_of_problem);

}  // namespace
}  // namespace attune
