// The wgrows family on the host device, against the reference in double and with all accesses
// checked: chunks of prefills of more than one row block, by one CTA and by several in turn.
#include "tests/support/family_on_host.h"

namespace attune {
namespace {

class WgrowsHost : public FamilyOnHost {
 protected:
  WgrowsHost() : FamilyOnHost("wgrows") {}
};

// Lengths at which a tile and the slots end, are one short of it or one past it; no key at all; and
// more query tokens than keys. What lies behind the keys is NaN. At the last one the ring begins again
// near the end of a tile, in both blocks.
TEST_P(WgrowsHost, IsRightAroundTheEdgesOfTiles) {
  const int block_n = config_.block_n;
  std::vector<VerifyCase> cases;
  for (const int kv_len : {0, 1, block_n - 1, 2 * block_n, 3 * block_n + 12}) {
    cases.push_back(case_of(kv_len));
  }
  // Sums are rescaled.
  for (const VerifyCase& one : verify_cases(problem_, 1)) {
    if (one.name == "large scores") cases.push_back(one);
  }
  EXPECT_EQ(outcome_on({}, cases, {1}), "right");
}

class WgrowsRules : public WgrowsHost {};

// Enough tiles for every slot to be filled three times, and a last round that some CTAs have no part in.
TEST_P(WgrowsRules, AreKept) {
  const std::vector<VerifyCase> cases = {case_of(3 * config_.num_stages * config_.block_n + 17)};
  EXPECT_EQ(outcome_on(checked_target(), cases, {3}), "right");
}

constexpr FamilyProblem kCausal = {"causal", "prefill/b1/q72/kv1-4096/h2x1/d256/contiguous/bf16",
                                   "m128n64s2w12"};
constexpr FamilyProblem kRing = {"ring", "prefill/b2/q75/kv1-4096/h2x1/d256/w90/ring/bf16",
                                 "m128n64s2w12"};
constexpr FamilyProblem kPaged = {"paged", "prefill/b2/q40/kv1-4096/h4x1/d256/p32/paged/bf16",
                                  "m128n32s4w12"};

INSTANTIATE_TEST_SUITE_P(
    Problems, WgrowsHost,
    testing::Values(kCausal, kRing, kPaged,
                    FamilyProblem{"window",
                                  "prefill/b1/q90/kv1-4096/h2x1/d256/w100/contiguous/bf16",
                                  "m128n64s2w12"},
                    FamilyProblem{"full_softcap",
                                  "prefill/b1/q50/kv1-4096/h3x1/d256/full/softcap/contiguous/bf16",
                                  "m128n64s2w12"}),
    name_of_problem);

INSTANTIATE_TEST_SUITE_P(Problems, WgrowsRules, testing::Values(kRing, kPaged), name_of_problem);

}  // namespace
}  // namespace attune
