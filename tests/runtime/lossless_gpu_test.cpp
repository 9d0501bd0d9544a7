// 10,000 tokens of each drafter on a GPU, of the tiny model and of a few layers as 31B has them. One
// test for each model and drafter; those of one program share the model and its plain decoding.
#include <gtest/gtest.h>

#include "jit/cuda_device.h"
#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/lossless_cases.h"
#include "tests/runtime/prefill_cases.h"
#include "tests/support/require_gpu.h"

namespace attune {
namespace {

int num_tokens() { return number_of_environment("ATTUNE_LOSSLESS_TOKENS", 10'000, 100, 1'000'000); }

// The window is 32 tokens, the ring has 256 rows.
struct TinyLossless {
  static std::unique_ptr<LosslessRuns> make(Engine& engine) {
    return tiny_lossless(
        engine,
        {.name = "tiny",
         .contexts = {1,  2,   5,   13,  20,  25,  30,  31,  32,   33,   34,   40,     50,
                      64, 100, 128, 200, 255, 256, 257, 500, 1000, 2000, 5000, 100'000},
         .num_tokens = num_tokens()},
        200);
  }
};

// The window is 1024 tokens, the ring has 1536 rows.
struct LargeLossless {
  static std::unique_ptr<LosslessRuns> make(Engine& engine) {
    const int num_layers = number_of_environment("ATTUNE_LOSSLESS_LAYERS", 4, 2, 60);
    return random_lossless(
        engine, ModelConfig::from_file(test_data("gemma4-configs") / "31b-newer.json"), num_layers,
        {.name = fmt::format("{} layers of 31B", num_layers),
         .contexts = {1, 100, 500, 600, 800, 900, 1000, 1022, 1023, 1024, 1025, 1300, 1500, 3000,
                      5000, 100'000},
         .num_tokens = num_tokens(),
         .row_stride = 8});
  }
};

template <typename Model>
class LosslessGpuTest : public GpuTest, public testing::WithParamInterface<Drafting> {
 protected:
  static void TearDownTestSuite() {
    runs_.reset();
    bench_.reset();
  }
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure() || runs_ != nullptr) return;
    Options options;
    options.nvrtc_path = test_nvrtc_search().nvrtc_path;
    options.cublaslt_path = test_gemm_search().cublaslt_path;
    options.cache_path = gemma4_test_cache();
    bench_ = std::make_unique<Gemma4Bench>(options, open_cuda_device(0));
    runs_ = Model::make(bench_->engine);
  }

  static inline std::unique_ptr<Gemma4Bench> bench_;
  static inline std::unique_ptr<LosslessRuns> runs_;
};

class TinyLosslessGpuTest : public LosslessGpuTest<TinyLossless> {};
class LargeLosslessGpuTest : public LosslessGpuTest<LargeLossless> {};

TEST_P(TinyLosslessGpuTest, GivesTheIdsAndBitsOfPlainDecoding) {
  runs_->expect_lossless(GetParam());
}
TEST_P(LargeLosslessGpuTest, GivesTheIdsAndBitsOfPlainDecoding) {
  runs_->expect_lossless(GetParam());
}

std::string name_of_param(const testing::TestParamInfo<Drafting>& info) {
  return std::string(name_of(info.param));
}
INSTANTIATE_TEST_SUITE_P(, TinyLosslessGpuTest, testing::ValuesIn(kDraftings), name_of_param);
INSTANTIATE_TEST_SUITE_P(, LargeLosslessGpuTest, testing::ValuesIn(kDraftings), name_of_param);

}  // namespace
}  // namespace attune
