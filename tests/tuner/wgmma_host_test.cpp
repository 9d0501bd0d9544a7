// The wgmma family on the host device, against the reference in double and with all accesses
// checked: verify steps of 17 to 128 packed rows, and chunks of prefills.
#include "tests/support/family_on_host.h"

namespace attune {
namespace {

class WgmmaHost : public FamilyOnHost {
 protected:
  WgmmaHost() : FamilyOnHost("wgmma") {}
};

TEST_P(WgmmaHost, IsRightInEveryCase) {
  auto cases = verify_cases(problem_, 1);
  std::erase_if(cases, [](const VerifyCase& one) { return one.name == kAccuracyCase; });
  EXPECT_EQ(outcome_on({}, cases, {3}), "right");
}

// Lengths at which a tile and the slots end, are one short of it or one past it; no key at all; and
// more query tokens than keys. What lies behind the keys is NaN.
TEST_P(WgmmaHost, IsRightAroundTheEdgesOfTiles) {
  const int block_n = config_.block_n;
  std::vector<VerifyCase> cases;
  for (const int kv_len : {0, 1, problem_.seqlen_q - 1, block_n - 1, block_n, block_n + 1,
                           2 * block_n, 3 * block_n - 1, 4 * block_n + 17}) {
    cases.push_back(case_of(kv_len));
  }
  EXPECT_EQ(outcome_on({}, cases, {1, 2}), "right");
}

// Enough tiles for every slot to be filled three times.
TEST_P(WgmmaHost, BreaksNoRule) {
  const std::vector<VerifyCase> cases = {case_of(3 * config_.num_stages * config_.block_n + 17)};
  EXPECT_EQ(outcome_on(checked_target(), cases, {1}), "right");
}

INSTANTIATE_TEST_SUITE_P(
    Problems, WgmmaHost,
    testing::Values(
        FamilyProblem{"q4", "verify/b1/q4/kv1-4096/h8x1/d512/contiguous/bf16", "m64n64s1w12"},
        FamilyProblem{"q8", "verify/b1/q8/kv1-4096/h8x1/d512/contiguous/bf16", "m64n32s2w12"},
        FamilyProblem{"q16", "verify/b1/q16/kv1-4096/h8x1/d512/contiguous/bf16", "m64n64s1w12"},
        FamilyProblem{"q5_window_softcap",
                      "verify/b2/q5/kv1-4096/h9x1/d512/w100/softcap/contiguous/bf16",
                      "m64n32s2w12"},
        FamilyProblem{"q8_paged", "verify/b1/q8/kv1-4096/h16x2/d512/p64/paged/bf16", "m64n64s1w12"},
        FamilyProblem{"q4_unified", "verify/b1/q4/kv1-4096/h16x1/d512/unified/bf16", "m64n64s2w12"},
        FamilyProblem{"q16_unified", "verify/b1/q16/kv1-4096/h8x1/d512/unified/bf16",
                      "m64n64s2w12"},
        FamilyProblem{"q3_unified_n32", "verify/b2/q3/kv1-4096/h16x2/d512/unified/bf16",
                      "m64n32s4w12"},
        FamilyProblem{"q8_unified_paged", "verify/b1/q8/kv1-4096/h8x1/d512/p128/unified-paged/bf16",
                      "m64n64s2w12"},
        FamilyProblem{"q7_unified_paged_softcap",
                      "verify/b1/q7/kv1-4096/h8x1/d512/full/softcap/p32/unified-paged/bf16",
                      "m64n32s3w12"}),
    name_of_problem);

// Chunks of prefills: three blocks of 64 rows.
class WgmmaPrefillHost : public WgmmaHost {};

TEST_P(WgmmaPrefillHost, IsRightAndBreaksNoRule) {
  std::vector<VerifyCase> cases = {case_of(problem_.seqlen_q - 3)};
  cases.push_back(case_of(3 * config_.num_stages * config_.block_n + 17));
  EXPECT_EQ(outcome_on(checked_target(), cases, {1}), "right");
}

INSTANTIATE_TEST_SUITE_P(
    Problems, WgmmaPrefillHost,
    testing::Values(
        FamilyProblem{"blocks", "prefill/b1/q70/kv1-4096/h2x1/d512/contiguous/bf16", "m64n64s1w12"},
        FamilyProblem{"unified_paged", "prefill/b2/q18/kv1-4096/h8x1/d512/p64/unified-paged/bf16",
                      "m64n64s2w12"}),
    name_of_problem);

}  // namespace
}  // namespace attune
