// Paged, unified and invariant problems on the host device, against the reference in double: the
// default candidate with all accesses checked, and corners of the configs.
#include <ostream>

#include <gtest/gtest.h>

#include "tests/support/host_kernels.h"
#include "tuner/space.h"
#include "tuner/verify.h"

namespace attune {
namespace {

// The edges and the large scores: the accuracy case has one long sequence, whose tiles are all
// alike, and takes longer than the others together.
std::vector<VerifyCase> edge_cases(const Problem& problem) {
  std::vector<VerifyCase> cases = verify_cases(problem, 1);
  std::erase_if(cases, [](const VerifyCase& one) { return one.name == kAccuracyCase; });
  return cases;
}

// The least and the most of everything that splitkv admits for the problem.
std::vector<Candidate> corners(const Problem& problem, const DeviceInfo& device) {
  std::vector<KernelConfig> configs =
      find_family("splitkv")->configs(problem.head_dim, problem.kv_layout);
  std::erase_if(configs, [&](const KernelConfig& config) {
    return prune(problem, *find_family("splitkv"), config, device).has_value();
  });
  const auto size = [](const KernelConfig& config) {
    return config.block_m * config.block_n * config.num_stages;
  };
  const auto [least, most] =
      std::minmax_element(configs.begin(), configs.end(), [&](const auto& a, const auto& b) {
        return std::pair(size(a), a.num_warps) < std::pair(size(b), b.num_warps);
      });
  return {{"splitkv", *least, 3}, {"splitkv", *most, 3}};
}

std::string outcome_on(const HostBench& bench, Verifier& verifier, const Problem& problem,
                       const Candidate& candidate) {
  const Variant variant = candidate.variant(problem);
  const AttentionKernels kernels =
      load_attention(*bench.device, bench.compile(attention_source(variant)), variant,
                     plan_launch(problem, candidate));
  const auto outcome = verifier.verify(kernels, candidate);
  const auto* rejection = std::get_if<Rejection>(&outcome);
  return rejection == nullptr ? "right" : rejection->detail;
}

struct LayoutProblem {
  const char* name;
  const char* text;
};
void PrintTo(const LayoutProblem& problem, std::ostream* out) { *out << problem.text; }

class HostLayouts : public testing::TestWithParam<LayoutProblem> {
 protected:
  const Problem problem_ = Problem::parse(GetParam().text);
};

TEST_P(HostLayouts, AreRightAtCornersOfTheConfigs) {
  const HostBench bench;
  const auto cases = edge_cases(problem_);
  Verifier verifier(*bench.device, cases);
  for (const Candidate& candidate : corners(problem_, bench.device->info())) {
    EXPECT_EQ(outcome_on(bench, verifier, problem_, candidate), "right") << candidate.text();
  }
}

TEST_P(HostLayouts, AreRightByTheDefaultWhichBreaksNoRule) {
  const HostBench bench({.target = checked_target()});
  const auto cases = edge_cases(problem_);
  Verifier verifier(*bench.device, cases);
  Candidate candidate = default_candidate(problem_, bench.device->info());
  candidate.split_cap = 3;
  EXPECT_EQ(outcome_on(bench, verifier, problem_, candidate), "right") << candidate.text();
}

INSTANTIATE_TEST_SUITE_P(
    Problems, HostLayouts,
    testing::Values(LayoutProblem{"decode_p16", "decode/b1/q1/kv1-8192/h4x2/d64/p16/paged/bf16"},
                    LayoutProblem{"verify8_p64", "verify/b1/q8/kv1-8192/h4x2/d64/p64/paged/bf16"},
                    LayoutProblem{"verify3_p256", "verify/b1/q3/kv1-8192/h2x1/d64/p256/paged/bf16"},
                    LayoutProblem{"verify5_d256_w100_p16",
                                  "verify/b1/q5/kv1-8192/h2x1/d256/w100/p16/paged/bf16"},
                    LayoutProblem{"decode_unified", "decode/b1/q1/kv1-1024/h8x1/d512/unified/bf16"},
                    LayoutProblem{"verify4_unified_p32",
                                  "verify/b1/q4/kv1-1024/h4x1/d512/p32/unified-paged/bf16"},
                    LayoutProblem{"verify3_invariant",
                                  "verify/b1/q3/kv1-8192/h4x2/d64/invariant/contiguous/bf16"},
                    LayoutProblem{"decode_invariant_d512",
                                  "decode/b1/q1/kv1-8192/h4x1/d512/invariant/contiguous/bf16"},
                    LayoutProblem{"verify5_invariant_d256_ring",
                                  "verify/b1/q5/kv1-8192/h4x2/d256/w32/invariant/ring/bf16"},
                    LayoutProblem{"verify2_invariant_unified",
                                  "verify/b1/q2/kv1-8192/h4x1/d512/invariant/unified/bf16"},
                    LayoutProblem{
                        "verify5_invariant_softcap",
                        "verify/b2/q5/kv1-8192/h3x1/d128/softcap/invariant/contiguous/bf16"}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace attune
