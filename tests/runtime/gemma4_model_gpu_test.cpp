// The whole tiny model on a GPU.
#include <gtest/gtest.h>

#include "jit/cuda_device.h"
#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/gemma4_model_cases.h"
#include "tests/support/require_gpu.h"

namespace attune {
namespace {

class Gemma4ModelGpuTest : public GpuTest {
 protected:
  std::unique_ptr<Gemma4Bench> bench() {
    Options options;
    options.nvrtc_path = test_nvrtc_search().nvrtc_path;
    options.cache_path = gemma4_test_cache();
    return std::make_unique<Gemma4Bench>(options, open_cuda_device(0));
  }
};

TEST_F(Gemma4ModelGpuTest, GivesTheGoldenLogits) { expect_golden_logits(bench()->engine); }

TEST_F(Gemma4ModelGpuTest, VerifyGivesTheBitsOfDecode) {
  expect_verify_is_decode(bench()->engine, 200);
}

TEST_F(Gemma4ModelGpuTest, TapsAreTheStreamsAndChangeNothing) { expect_taps(bench()->engine); }

}  // namespace
}  // namespace attune
