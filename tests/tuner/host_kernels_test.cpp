// Families at the corners of their config spaces on the host device, against the reference in double,
// and the default of every problem with all accesses checked. Those with streams of tiles and of
// warpgroups have tests of their own: swapab_host_test.cpp, oneround_host_test.cpp,
// wgmma_host_test.cpp, wgrows_host_test.cpp.
#include <algorithm>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/config_corners.h"
#include "tests/support/host_kernels.h"
#include "tuner/space.h"
#include "tuner/verify.h"

namespace attune {
namespace {

const std::vector<std::string> kOfWarpgroups = {"wgmma", "wgrows"};
bool is_of_warpgroups(const Family& family) {
  return std::find(kOfWarpgroups.begin(), kOfWarpgroups.end(), family.name) != kOfWarpgroups.end();
}

struct HostProblem {
  const char* name;
  const char* text;
};

// For ctest's list of tests.
void PrintTo(const HostProblem& problem, std::ostream* out) { *out << problem.text; }

std::string outcome_text(const std::variant<Admission, Rejection>& outcome) {
  const auto* rejection = std::get_if<Rejection>(&outcome);
  return rejection == nullptr ? "right" : rejection->detail;
}

class HostKernels : public testing::TestWithParam<HostProblem> {
 protected:
  static std::string verify_on(const HostBench& bench, Verifier& verifier, const Problem& problem,
                               const Candidate& candidate) {
    const Variant variant = candidate.variant(problem);
    const AttentionKernels kernels =
        load_attention(*bench.device, bench.compile(attention_source(variant)), variant,
                       plan_launch(problem, candidate));
    return outcome_text(verifier.verify(kernels, candidate));
  }
};

TEST_P(HostKernels, AreRightAtEveryCornerOfTheConfigs) {
  const HostBench bench;
  const Problem problem = Problem::parse(GetParam().text);
  const auto cases = verify_cases(problem, 1);
  // What comes after the edges has many tiles: once for each family is enough here, and a GPU has all
  // of it with every candidate.
  auto edges = cases;
  std::erase_if(edges, [](const VerifyCase& one) { return one.name == kAccuracyCase; });
  Verifier of_all(*bench.device, cases), of_edges(*bench.device, edges);
  int num_right = 0;
  for (const Family& family : families_of(Op::kDecode)) {
    if (family.num_streams != nullptr || is_of_warpgroups(family)) continue;
    bool is_first = true;
    for (const KernelConfig& config :
         config_corners(family, problem.head_dim, problem.kv_layout, bench.device->info())) {
      if (family.supports(problem, config)) continue;
      // Three splits, so that the combine takes part whatever the device's size is.
      const int split_cap = family.splits_keys ? 3 : 1;
      const Candidate candidate{std::string(family.name), config, split_cap};
      Verifier& verifier = is_first ? of_all : of_edges;
      EXPECT_EQ(verify_on(bench, verifier, problem, candidate), "right") << candidate.text();
      is_first = false;
      ++num_right;
    }
  }
  EXPECT_GE(num_right, 4);
}

// Prefills have over a hundred rows: here they run at few lengths, and at all of them on a GPU.
class HostPrefill : public HostKernels {
 protected:
  static std::vector<VerifyCase> few_cases(const Problem& problem) {
    std::vector<VerifyCase> cases;
    cases.push_back(verify_case(problem, 1, "few", {1, problem.seqlen_q - 1, 64, 201}));
    return cases;
  }
};

class HostPrefillCorners : public HostPrefill {};

TEST_P(HostPrefillCorners, AreRight) {
  const HostBench bench;
  const Problem problem = Problem::parse(GetParam().text);
  const auto cases = few_cases(problem);
  Verifier verifier(*bench.device, cases);
  const Family& family = known_family("tiled");
  int num_right = 0;
  for (const KernelConfig& config :
       config_corners(family, problem.head_dim, problem.kv_layout, bench.device->info())) {
    if (family.supports(problem, config)) continue;
    const Candidate candidate{std::string(family.name), config, 1};
    EXPECT_EQ(verify_on(bench, verifier, problem, candidate), "right") << candidate.text();
    ++num_right;
  }
  EXPECT_GE(num_right, 4);
}

TEST_P(HostPrefill, BreaksNoRuleByAnyFamily) {
  const Problem problem = Problem::parse(GetParam().text);
  const auto cases = few_cases(problem);
  const std::string others[] = {"tiled", "slices", "wgmma", "wgrows"};
  for (const bool early_copies : {false, true}) {
    const HostBench bench({.target = checked_target(), .early_copies = early_copies});
    Verifier verifier(*bench.device, cases);
    const Candidate tiled = default_candidate(problem, bench.device->info(), kOfWarpgroups);
    EXPECT_EQ(tiled.family, "tiled");
    EXPECT_EQ(verify_on(bench, verifier, problem, tiled), "right") << tiled.text();
    if (early_copies) continue;  // the splits' copies are those of decode and verify
    // Where there is less shared memory.
    const char* const arch = is_unified(problem.kv_layout) ? "sm_80" : "sm_89";
    const Candidate small = default_candidate(problem, architecture_limits(arch));
    if (small != tiled) {
      EXPECT_EQ(verify_on(bench, verifier, problem, small), "right") << small.text();
    }
    Candidate splitkv = default_candidate(problem, bench.device->info(), others);
    splitkv.split_cap = 3;
    EXPECT_EQ(verify_on(bench, verifier, problem, splitkv), "right") << splitkv.text();
  }
}

TEST_P(HostKernels, BreakNoRule) {
  const Problem problem = Problem::parse(GetParam().text);
  auto cases = verify_cases(problem, 1);
  for (const bool early_copies : {false, true}) {
    const HostBench bench({.target = checked_target(), .early_copies = early_copies});
    Verifier verifier(*bench.device, cases);
    Candidate candidate = default_candidate(problem, bench.device->info(), kOfWarpgroups);
    if (known_family(candidate.family).splits_keys) candidate.split_cap = 3;
    EXPECT_EQ(verify_on(bench, verifier, problem, candidate), "right") << candidate.text();
    // What comes after the edges has many tiles: once is enough.
    std::erase_if(cases, [](const VerifyCase& one) { return one.name == kAccuracyCase; });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Problems, HostKernels,
    testing::Values(
        HostProblem{"decode_d512", "decode/b1/q1/kv1-8192/h8x1/d512/contiguous/bf16"},
        HostProblem{"verify3_d512", "verify/b1/q3/kv1-8192/h8x1/d512/contiguous/bf16"},
        HostProblem{"decode_d256_ring", "decode/b1/q1/kv1-8192/h2x1/d256/w1024/ring/bf16"},
        HostProblem{"verify5_d256_ring", "verify/b1/q5/kv1-8192/h2x1/d256/w300/ring/bf16"},
        HostProblem{"verify16_d256_window",
                    "verify/b1/q16/kv1-8192/h2x1/d256/w1024/contiguous/bf16"},
        HostProblem{"decode_d128_batch", "decode/b3/q1/kv1-8192/h9x3/d128/contiguous/bf16"},
        HostProblem{"verify5_d128_softcap",
                    "verify/b2/q5/kv1-8192/h3x1/d128/softcap/contiguous/bf16"},
        HostProblem{"verify16_d128_full", "verify/b1/q16/kv1-8192/h1x1/d128/full/contiguous/bf16"},
        HostProblem{"decode_d64_ring", "decode/b1/q1/kv1-8192/h2x2/d64/w17/ring/bf16"},
        HostProblem{"verify2_d64_all",
                    "verify/b1/q2/kv1-8192/h2x1/d64/w100/full/softcap/contiguous/bf16"}),
    [](const auto& instance) { return std::string(instance.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Tiled, HostPrefillCorners,
    testing::Values(HostProblem{"d512", "prefill/b1/q33/kv1-200/h8x1/d512/contiguous/bf16"},
                    HostProblem{"d512_unified_paged",
                                "prefill/b1/q20/kv1-200/h8x1/d512/p32/unified-paged/bf16"},
                    HostProblem{"d256_ring", "prefill/b2/q33/kv1-200/h8x4/d256/w32/ring/bf16"},
                    HostProblem{"d64_full",
                                "prefill/b1/q150/kv1-200/h1x1/d64/full/contiguous/bf16"}),
    [](const auto& instance) { return std::string(instance.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Defaults, HostPrefill,
    testing::Values(
        HostProblem{"d512", "prefill/b1/q33/kv1-200/h8x1/d512/contiguous/bf16"},
        HostProblem{"d512_unified", "prefill/b1/q33/kv1-200/h8x1/d512/unified/bf16"},
        HostProblem{"d512_paged", "prefill/b1/q33/kv1-200/h8x1/d512/p16/paged/bf16"},
        HostProblem{"d512_ring", "prefill/b1/q33/kv1-200/h8x1/d512/w32/ring/bf16"},
        HostProblem{"d256_paged_window", "prefill/b1/q70/kv1-200/h4x2/d256/w100/p64/paged/bf16"},
        HostProblem{"d128_softcap", "prefill/b2/q33/kv1-200/h3x1/d128/softcap/contiguous/bf16"}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace attune
