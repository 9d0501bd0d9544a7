// The stages on a real GPU: every candidate compiles and is right, and a tune serves a second one.
#include <gtest/gtest.h>

#include <set>

#include "jit/compile_pool.h"
#include "jit/device_monitor.h"
#include "jit/model_source.h"
#include "tests/support/planted.h"
#include "tests/support/require_gpu.h"
#include "tuner/compile_stage.h"
#include "tuner/isolated_measure.h"
#include "tuner/space.h"
#include "tuner/timer.h"
#include "tuner/tuner.h"
#include "tuner/verify.h"

namespace attune {
namespace {

class TunerGpuTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    CompilePoolOptions options;
    options.compilers.nvrtc = test_nvrtc_search();
    pool_ = std::make_unique<CompilePool>(options);
    compiles_ = compile_service(compiler(), *pool_);
  }

  std::unique_ptr<CompilePool> pool_;
  std::unique_ptr<CompileService> compiles_;
  std::unique_ptr<TuneStore> store_ = TuneStore::open_in_memory();
};

class EveryCandidate : public TunerGpuTest, public testing::WithParamInterface<const char*> {};

TEST_P(EveryCandidate, CompilesAndIsRight) {
  const Problem problem = Problem::parse(GetParam());
  const CandidateSpace space = candidate_space(problem, device().info());
  std::set<Variant> variants;
  for (const Candidate& one : space.kept) variants.insert(one.variant(problem));
  CompileStage stage(*store_, *compiles_, device().info().arch);
  stage.run(variants, false, false, {}, {});

  const auto cases = verify_cases(problem, 1);
  Verifier verifier(device(), cases);
  int num_admitted = 0;
  for (const Candidate& candidate : space.kept) {
    const Variant variant = candidate.variant(problem);
    ASSERT_EQ(stage.failure(variant), nullptr) << variant.text() << *stage.failure(variant);
    const Binary& binary = *stage.find(variant);
    const LaunchPlan plan = plan_launch(problem, candidate);
    if (prune_compiled(binary, plan, device().info())) continue;
    const AttentionKernels kernels = load_attention(device(), binary, variant, plan);
    const auto outcome = verifier.verify(kernels, candidate);
    const auto* rejection = std::get_if<Rejection>(&outcome);
    EXPECT_EQ(rejection, nullptr) << candidate.text() << ": " << rejection->detail;
    ++num_admitted;
  }
  EXPECT_GT(num_admitted, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Problems, EveryCandidate,
    testing::Values("decode/b1/q1/kv1-8192/h8x1/d512/contiguous/bf16",
                    "verify/b1/q2/kv1-8192/h8x1/d512/contiguous/bf16",
                    "verify/b1/q5/kv1-8192/h16x2/d512/contiguous/bf16",
                    "verify/b1/q16/kv1-8192/h8x1/d512/contiguous/bf16",
                    "decode/b1/q1/kv1-8192/h4x2/d256/w1024/ring/bf16",
                    "verify/b1/q5/kv1-8192/h4x2/d256/w300/ring/bf16",
                    "verify/b1/q16/kv1-8192/h2x1/d256/w1024/contiguous/bf16",
                    "decode/b3/q1/kv1-8192/h9x3/d128/contiguous/bf16",
                    "verify/b2/q5/kv1-8192/h3x1/d128/softcap/contiguous/bf16",
                    "verify/b1/q16/kv1-8192/h1x1/d128/full/contiguous/bf16",
                    "decode/b1/q1/kv1-8192/h2x2/d64/w17/ring/bf16",
                    "verify/b1/q2/kv1-8192/h2x1/d64/w100/full/softcap/contiguous/bf16",
                    "prefill/b1/q33/kv1-8192/h8x1/d512/contiguous/bf16",
                    "prefill/b1/q33/kv1-8192/h8x1/d512/p64/unified-paged/bf16",
                    "prefill/b2/q70/kv1-8192/h4x2/d256/w300/ring/bf16",
                    "prefill/b1/q70/kv1-8192/h2x1/d128/softcap/p64/paged/bf16"));

TEST_F(TunerGpuTest, TunesOnceAndServesTheSecondRunFromTheStore) {
  const std::vector<Problem> problems = {
      Problem::parse("decode/b1/q1/kv1-8192/h8x1/d512/contiguous/bf16"),
      Problem::parse("verify/b1/q4/kv1-8192/h4x2/d256/w1024/ring/bf16")};
  IsolatedMeasure measure({.device = "0"}, device().info());
  Tuner tuner(&measure, *store_, *compiles_);
  const TuneReport first = tuner.tune(problems, {});
  EXPECT_EQ(first.num_tuned, 2u);
  EXPECT_TRUE(first.failures.empty()) << first.failures.front();
  for (const Winner& winner : first.winners) {
    EXPECT_LE(winner.admission.relative_l2, kMaxRelativeL2) << winner.candidate.text();
    EXPECT_GT(winner.margin_default, -0.02) << winner.candidate.text();
  }
  const TuneReport second = tuner.tune(problems, {});
  EXPECT_EQ(second.num_cached, 2u);
  EXPECT_EQ(second.num_compiled, 0u);
  EXPECT_EQ(second.num_timed, 0u);
}

// Few short launches that still take every path (several tiles and splits, one and several stages,
// every layout, padding rows): what compute-sanitizer's racecheck can follow in a minute each.
class SampleOfCandidates : public TunerGpuTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static std::set<std::string> families_in(const CandidateSpace& space) {
    std::set<std::string> names;
    for (const Candidate& one : space.kept) names.insert(one.family);
    return names;
  }
  static std::vector<std::string> all_but(const std::string& name) {
    std::vector<std::string> others;
    for (const Family& family : families()) {
      if (family.name != name) others.emplace_back(family.name);
    }
    return others;
  }
};

TEST_P(SampleOfCandidates, Runs) {
  const Problem problem = Problem::parse(GetParam());
  // A prefill has many rows: what matters is that each family that can compute it runs.
  const std::size_t every_nth = problem.op == Op::kPrefill ? 20 : 7;
  std::vector<VerifyCase> cases = verify_cases(problem, 1);
  std::erase_if(cases, [](const VerifyCase& one) { return one.name != "large scores"; });
  ASSERT_EQ(cases.size(), 1u);
  const CandidateSpace space = candidate_space(problem, device().info());
  std::vector<Candidate> sample;
  for (std::size_t i = 0; i < space.kept.size(); i += every_nth) sample.push_back(space.kept[i]);
  for (const std::string& name : families_in(space)) {
    sample.push_back(default_candidate(problem, device().info(), all_but(name)));
  }
  std::set<Variant> variants;
  for (const Candidate& one : sample) variants.insert(one.variant(problem));
  CompileStage stage(*store_, *compiles_, device().info().arch);
  stage.run(variants, false, false, {}, {});
  Verifier verifier(device(), cases);
  for (const Candidate& candidate : sample) {
    const Variant variant = candidate.variant(problem);
    const Binary* binary = stage.find(variant);
    ASSERT_NE(binary, nullptr) << variant.text();
    const LaunchPlan plan = plan_launch(problem, candidate);
    if (prune_compiled(*binary, plan, device().info())) continue;
    const auto outcome =
        verifier.verify(load_attention(device(), *binary, variant, plan), candidate);
    const auto* rejection = std::get_if<Rejection>(&outcome);
    EXPECT_EQ(rejection, nullptr) << candidate.text() << ": " << rejection->detail;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Problems, SampleOfCandidates,
    ::testing::Values("verify/b1/q5/kv1-8192/h16x2/d512/contiguous/bf16",
                      "verify/b1/q5/kv1-8192/h4x2/d256/w100/ring/bf16",
                      "verify/b1/q2/kv1-8192/h6x2/d64/full/softcap/contiguous/bf16",
                      "verify/b2/q5/kv1-8192/h4x1/d512/p16/paged/bf16",
                      "verify/b1/q8/kv1-8192/h8x1/d512/unified/bf16",
                      "decode/b1/q1/kv1-8192/h8x1/d512/unified/bf16",
                      "verify/b1/q2/kv1-8192/h8x1/d512/contiguous/bf16",
                      "verify/b2/q5/kv1-8192/h4x1/d512/p32/unified-paged/bf16",
                      "verify/b1/q8/kv1-8192/h8x1/d512/invariant/unified/bf16",
                      "prefill/b1/q33/kv1-8192/h8x1/d512/contiguous/bf16",
                      "prefill/b1/q33/kv1-8192/h8x1/d512/p64/paged/bf16",
                      "prefill/b1/q33/kv1-8192/h8x1/d512/unified/bf16",
                      "prefill/b1/q33/kv1-8192/h8x1/d512/p64/unified-paged/bf16",
                      "prefill/b2/q70/kv1-8192/h4x2/d256/w300/ring/bf16",
                      "prefill/b1/q70/kv1-8192/h2x1/d256/p64/paged/bf16",
                      "prefill/b1/q70/kv1-8192/h2x1/d128/softcap/p64/paged/bf16"));

// A kernel that does not wait reads x before the one in front has written it.
TEST_F(TunerGpuTest, ALinearLayerThatReadsXTooEarlyIsRejected) {
  const Binary probes =
      compiler().compile(probe_source(device().info().arch), device().info().arch);
  for (const char* text :
       {"linear/m8/n5376/k8192/store/bf16", "linear/m16/n5376/k2048/geglu/int4"}) {
    const Problem problem = Problem::parse(text);
    const auto verifier = make_verifier(device(), problem, 1, &probes);
    const Candidate candidate = default_candidate(problem, device().info());
    const Variant variant = candidate.variant(problem);
    const auto verdict = [&](const Source& source) -> std::string {
      const AttentionKernels kernels =
          load_attention(device(), compiler().compile(source, device().info().arch), variant,
                         plan_launch(problem, candidate));
      const auto outcome = verifier->verify(kernels, candidate);
      const auto* rejection = std::get_if<Rejection>(&outcome);
      return rejection == nullptr ? "right" : rejection->detail;
    };
    EXPECT_EQ(verdict(variant_source(variant)), "right") << text;
    Planted early(variant_source(variant));
    early.change("templates/linear.cuh", "    griddepcontrol_wait();\n", "");
    EXPECT_NE(verdict(early.source()).find("is read before griddepcontrol.wait"), std::string::npos)
        << text;
  }
}

TEST_F(TunerGpuTest, TimesTheSameKernelAlikeTwice) {
  const Problem problem = Problem::parse("decode/b1/q1/kv1-32768/h32x4/d512/contiguous/bf16");
  const Candidate candidate = default_candidate(problem, device().info());
  const Variant variant = candidate.variant(problem);
  CompileStage stage(*store_, *compiles_, device().info().arch);
  stage.run({variant}, true, false, {}, {});
  ASSERT_NE(stage.find(variant), nullptr);
  const AttentionKernels kernels =
      load_attention(device(), *stage.find(variant), variant, plan_launch(problem, candidate));
  AttentionTimer timer(device(), *stage.probes(), problem);
  const auto monitor = open_device_monitor(device().info());
  timer.watch(*monitor);  // as in a tune: windows in which a clock jumps are taken again
  const Ceilings ceilings = measure_ceilings(device(), *stage.probes());
  EXPECT_GT(ceilings.read_bytes_per_s, 1e11);
  EXPECT_GT(ceilings.tensor_flops_per_s, 1e12);
  for (const int kv_len : {1, 1024, 32768}) {
    const Timing first = timer.measure(kernels, candidate, kv_len);
    const Timing second = timer.measure(kernels, candidate, kv_len);
    const double first_us = first.median_us, second_us = second.median_us;
    EXPECT_NEAR(first_us, second_us, 0.05 * first_us)
        << "kv_len=" << kv_len << " SM MHz " << first.conditions.sm_clock_mhz << " and "
        << second.conditions.sm_clock_mhz << ", samples " << first.num_samples << " and "
        << second.num_samples;
    // Not faster than the memory: the L2 was cold.
    const double floor_us = problem_bytes(problem, kv_len) / ceilings.read_bytes_per_s * 1e6;
    EXPECT_GT(first_us, 0.95 * floor_us) << kv_len;
  }
}

TEST_F(TunerGpuTest, GivesDeviceMemoryBack) {
  const std::size_t before = device().free_memory_bytes();
  const Problem problem = Problem::parse("decode/b1/q1/kv1-64/h2x1/d64/contiguous/bf16");
  {
    IsolatedMeasure measure({.device = "0"}, device().info());
    Tuner(&measure, *store_, *compiles_).tune({problem}, {});
    EXPECT_GT(measure.num_started(), 0);
  }
  EXPECT_LT(before - std::min(before, device().free_memory_bytes()), std::size_t{10} << 20);
}

}  // namespace
}  // namespace attune
