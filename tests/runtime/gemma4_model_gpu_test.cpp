// The whole tiny model on a GPU.
#include <gtest/gtest.h>

#include "jit/cuda_device.h"
#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/gemma4_model_cases.h"
#include "tests/runtime/generate_cases.h"
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
  expect_right_prefills(device(), compiler());
  expect_right_packed_prefills(device(), compiler());
}

// The shapes of 31B's layers, a few rows of each product.
TEST_F(PrefillGpuTest, LargeLayersGiveTheProductRoundedOnce) {
  expect_right_large_prefills(device(), compiler());
}

TEST_F(PrefillGpuTest, GivesTheGoldenLogits) { expect_golden_prefills(bench()->engine); }

// Layers of 31B's shapes, as many as a short test has time for.
TEST_F(Gemma4ModelGpuTest, LargeLayersAreLosslessToo) {
  ModelConfig config = ModelConfig::from_file(test_data("gemma4-configs") / "31b-newer.json");
  config.geometry.layers.resize(6);  // five sliding ones, a global one
  expect_lossless_at(bench()->engine, config, 400, {1000, 5000, 100'000});
}

}  // namespace
}  // namespace attune
