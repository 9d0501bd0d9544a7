// The wgmma family on the host device, against the reference in double and with all accesses
// checked: verify steps of 17 to 128 packed rows.
#include <algorithm>
#include <ostream>
#include <string>
#include <variant>

#include <gtest/gtest.h>

#include "tests/support/host_kernels.h"
#include "tuner/verify.h"

namespace attune {
namespace {

struct WgmmaProblem {
  const char* name;
  const char* problem;
  const char* config;
};
void PrintTo(const WgmmaProblem& one, std::ostream* out) { *out << one.problem << one.config; }

class WgmmaHost : public testing::TestWithParam<WgmmaProblem> {
 protected:
  std::string outcome_on(const HostBench& bench, const std::vector<VerifyCase>& cases,
                         int split_cap) const {
    Verifier verifier(*bench.device, cases);
    const Candidate candidate{"wgmma", parse_config(GetParam().config), split_cap};
    const Variant variant = candidate.variant(problem_);
    const AttentionKernels kernels =
        load_attention(*bench.device, bench.compile(attention_source(variant)), variant,
                       plan_launch(problem_, candidate));
    const auto outcome = verifier.verify(kernels, candidate);
    const auto* rejection = std::get_if<Rejection>(&outcome);
    return rejection == nullptr ? "right" : rejection->detail;
  }

  const Problem problem_ = Problem::parse(GetParam().problem);
};

TEST_P(WgmmaHost, IsRightInEveryCase) {
  const Family& family = known_family("wgmma");
  const auto refusal = family.supports(problem_, parse_config(GetParam().config));
  ASSERT_FALSE(refusal) << refusal->detail;
  auto cases = verify_cases(problem_, 1);
  std::erase_if(cases, [](const VerifyCase& one) { return one.name == kAccuracyCase; });
  EXPECT_EQ(outcome_on(HostBench(), cases, 3), "right");
}

// Lengths at which a tile and the slots end, are one short of it or one past it; no key at all; and
// more query tokens than keys. What lies behind the keys is NaN.
TEST_P(WgmmaHost, IsRightAroundTheEdgesOfTiles) {
  const int block_n = parse_config(GetParam().config).block_n;
  std::vector<VerifyCase> cases;
  for (const int kv_len : {0, 1, problem_.seqlen_q - 1, block_n - 1, block_n, block_n + 1,
                           2 * block_n, 3 * block_n - 1, 4 * block_n + 17}) {
    cases.push_back(verify_case(problem_, 1, "edge", std::vector<int>(problem_.batch, kv_len)));
  }
  for (const bool early_copies : {false, true}) {
    const HostBench bench({.early_copies = early_copies});
    for (const int split_cap : {1, 2}) {
      EXPECT_EQ(outcome_on(bench, cases, split_cap), "right")
          << "split_cap=" << split_cap << " early_copies=" << early_copies;
    }
  }
}

// Enough tiles for every slot to be filled three times.
TEST_P(WgmmaHost, BreaksNoRule) {
  const KernelConfig config = parse_config(GetParam().config);
  const int kv_len = 3 * config.num_stages * config.block_n + 17;
  const std::vector<VerifyCase> cases = {
      verify_case(problem_, 1, "slots", std::vector<int>(problem_.batch, kv_len))};
  for (const bool early_copies : {false, true}) {
    const HostBench bench({.target = checked_target(), .early_copies = early_copies});
    EXPECT_EQ(outcome_on(bench, cases, 1), "right") << "early_copies=" << early_copies;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Problems, WgmmaHost,
    testing::Values(
        WgmmaProblem{"q4", "verify/b1/q4/kv1-4096/h8x1/d512/contiguous/bf16", "m64n64s1w12"},
        WgmmaProblem{"q8", "verify/b1/q8/kv1-4096/h8x1/d512/contiguous/bf16", "m64n32s2w12"},
        WgmmaProblem{"q16", "verify/b1/q16/kv1-4096/h8x1/d512/contiguous/bf16", "m64n64s1w12"},
        WgmmaProblem{"q5_window_softcap",
                     "verify/b2/q5/kv1-4096/h9x1/d512/w100/softcap/contiguous/bf16", "m64n32s2w12"},
        WgmmaProblem{"q8_paged", "verify/b1/q8/kv1-4096/h16x2/d512/p64/paged/bf16", "m64n64s1w12"},
        WgmmaProblem{"q4_unified", "verify/b1/q4/kv1-4096/h16x1/d512/unified/bf16", "m64n64s2w12"},
        WgmmaProblem{"q16_unified", "verify/b1/q16/kv1-4096/h8x1/d512/unified/bf16", "m64n64s2w12"},
        WgmmaProblem{"q3_unified_n32", "verify/b2/q3/kv1-4096/h16x2/d512/unified/bf16",
                     "m64n32s4w12"},
        WgmmaProblem{"q8_unified_paged", "verify/b1/q8/kv1-4096/h8x1/d512/p128/unified-paged/bf16",
                     "m64n64s2w12"},
        WgmmaProblem{"q7_unified_paged_softcap",
                     "verify/b1/q7/kv1-4096/h8x1/d512/full/softcap/p32/unified-paged/bf16",
                     "m64n32s3w12"}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace attune
