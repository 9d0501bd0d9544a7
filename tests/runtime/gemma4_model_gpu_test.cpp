// The whole tiny model on a GPU.
#include <gtest/gtest.h>

#include "jit/cuda_device.h"
#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/gemma4_kind_cases.h"
#include "tests/runtime/gemma4_model_cases.h"
#include "tests/runtime/generate_cases.h"
#include "tests/runtime/generate_swap.h"
#include "tests/runtime/prefill_cases.h"
#include "tests/support/require_gpu.h"

namespace attune {
namespace {

class Gemma4ModelGpuTest : public GpuTest {
 protected:
  std::unique_ptr<Gemma4Bench> bench() {
    Options options;
    options.nvrtc_path = test_nvrtc_search().nvrtc_path;
    options.cublaslt_path = test_gemm_search().cublaslt_path;
    options.cache_path = gemma4_test_cache();
    return std::make_unique<Gemma4Bench>(options, open_cuda_device(0));
  }
};

TEST_F(Gemma4ModelGpuTest, GivesTheGoldenLogits) { expect_golden_logits(bench()->engine); }

TEST_F(Gemma4ModelGpuTest, VerifyGivesTheBitsOfDecode) {
  expect_verify_is_decode(bench()->engine, 200);
}

TEST_F(Gemma4ModelGpuTest, TapsAreTheStreamsAndChangeNothing) { expect_taps(bench()->engine); }

TEST_F(Gemma4ModelGpuTest, PerLayerInputsAreTheirFormulasAndLossless) {
  const auto on = bench();
  const KindModel kind(served_config(tiny_per_layer_config()));
  expect_kind_logits(on->engine, kind, 40);
  expect_kind_lossless(on->engine, kind, LinearWeights::kBf16, 100);
  expect_kind_lossless(on->engine, kind, LinearWeights::kInt4, 100);
}

TEST_F(Gemma4ModelGpuTest, ExpertsAreTheirFormulasAndLossless) {
  const auto on = bench();
  const KindModel kind(served_config(tiny_experts_config()), kDecidedSeed);
  expect_kind_logits(on->engine, kind, kDecidedTokens);
  expect_kind_lossless(on->engine, kind, LinearWeights::kBf16, 100);
  expect_kind_lossless(on->engine, kind, LinearWeights::kInt4, 100);
}

TEST_F(Gemma4ModelGpuTest, GenerationIsLosslessWhateverIsDrafted) {
  expect_lossless(bench()->engine, 100, {1, 2, 3, 4, 7, 8, 15}, {1, 13, 31, 40, 100});
}

TEST_F(Gemma4ModelGpuTest, GenerationSamplesTheSameTokensForASeed) {
  expect_sampling_repeats(bench()->engine, 60);
}

TEST_F(Gemma4ModelGpuTest, RunsShareAGenerator) {
  expect_runs_share_a_generator(bench()->engine, {31, 1, 100, 13});
}

TEST_F(Gemma4ModelGpuTest, PackedWeightsAreLosslessToo) {
  expect_packed_weights(bench()->engine, 100);
}

TEST_F(Gemma4ModelGpuTest, GenerationEndsWhereItIsTold) { expect_ends(bench()->engine); }

TEST_F(Gemma4ModelGpuTest, WinnersServeAGeneratorFromTheNextStepOn) {
  Options options;
  options.nvrtc_path = test_nvrtc_search().nvrtc_path;
  for (const bool in_the_middle : {true, false}) {
    SwapUnderGenerator(options, open_cuda_device(0), compiler()).run(in_the_middle);
  }
}

TEST_F(Gemma4ModelGpuTest, Eagle3HeadIsItsFormula) {
  const auto on = bench();
  expect_eagle3_oracle(on->engine, true);
  expect_eagle3_oracle(on->engine, false);
}

// By cuBLASLt: without it these skip and say so, or fail when ATTUNE_REQUIRE_CUBLASLT=1. The tests above
// run prefills by it where it is there.
class PrefillGpuTest : public Gemma4ModelGpuTest {
 protected:
  void SetUp() override {
    Gemma4ModelGpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    try {
      device().open_gemm(test_gemm_search());
    } catch (const DeviceUnavailable& error) {
      if (is_required("ATTUNE_REQUIRE_CUBLASLT")) FAIL() << error.what();
      GTEST_SKIP() << error.what();
    }
  }
};

TEST_F(PrefillGpuTest, LayersGiveTheProductRoundedOnce) {
  const auto on = bench();
  expect_right_prefills(on->engine, compiler());
  expect_right_packed_prefills(on->engine, compiler());
}

// The shapes of 31B's layers, a few rows of each product.
TEST_F(PrefillGpuTest, LargeLayersGiveTheProductRoundedOnce) {
  expect_right_large_prefills(bench()->engine, compiler());
}

TEST_F(PrefillGpuTest, GivesTheGoldenLogits) { expect_golden_prefills(bench()->engine); }

// A model's first layers, as many as a short test has time for.
ModelConfig first_layers(const std::string& size, std::size_t num_layers) {
  ModelConfig config = ModelConfig::from_file(test_data("gemma4-configs") / (size + "-newer.json"));
  config.geometry.layers.resize(num_layers);
  return config;
}

TEST_F(Gemma4ModelGpuTest, LargeLayersWithExpertsAreLosslessToo) {
  expect_lossless_at(bench()->engine, first_layers("26b-a4b", 6), 400, {1000, 5000});
}

TEST_F(Gemma4ModelGpuTest, LargeLayersWithPerLayerInputsAreLosslessToo) {
  // The last five have no caches of their own.
  expect_lossless_at(bench()->engine, first_layers("e2b", 20), 400, {1000, 5000, 100'000});
}

}  // namespace
}  // namespace attune
