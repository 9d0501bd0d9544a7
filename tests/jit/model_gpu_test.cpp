// The kernels of a model beside its attention on a GPU: against references in double, and their bits
// against the host device's.
#include <gtest/gtest.h>

#include "tests/support/expert_run.h"
#include "tests/support/expert_steps_run.h"
#include "tests/support/host_kernels.h"
#include "tests/support/model_run.h"
#include "tests/support/per_layer_run.h"
#include "tests/support/require_cxx.h"
#include "tests/support/require_gpu.h"

namespace attune {
namespace {

class ModelGpuTest : public GpuTest {
 protected:
  Module load(const Source& source) {
    return device().load(compiler().compile(source, device().info().arch));
  }
};

// Shares of more than one pass, panels that are no multiple of the warps, a last one that is not
// whole.
const std::vector<LinearShape> kShapes = {{5376, 64}, {1057, 2056}, {5, 8}, {6500, 584}};

// The configs that models are served with on an H200, and a small one.
struct ServedConfig {
  KernelConfig config;
  LinearWeights weights;
};
constexpr ServedConfig kConfigs[] = {
    {{8, 48, 3, 8}, LinearWeights::kBf16},  {{16, 48, 2, 8}, LinearWeights::kBf16},
    {{16, 16, 5, 8}, LinearWeights::kBf16}, {{1, 48, 2, 16}, LinearWeights::kInt4},
    {{8, 48, 2, 16}, LinearWeights::kInt4}, {{16, 16, 2, 16}, LinearWeights::kInt4}};

TEST_F(ModelGpuTest, LinearGivesTheProductRoundedOnce) {
  for (const auto& [config, weights] : kConfigs) {
    for (const auto epilogue :
         {LinearEpilogue::kStore, LinearEpilogue::kGeglu, LinearEpilogue::kSwiglu}) {
      LoadedLinear loaded(device(), compiler(), config, epilogue, weights);
      for (LinearShape shape : kShapes) {
        SCOPED_TRACE(loaded.source.symbols.front() + " " + std::to_string(shape.out_features));
        shape.epilogue = epilogue;
        LinearProblem problem(shape, std::max(1, config.block_m - 1), 5);
        if (weights == LinearWeights::kInt4) problem.pack();
        expect_right(problem,
                     run_linear<std::uint16_t>(
                         device(), loaded.of(problem.shape, device().info().num_sms), problem));
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(ModelGpuTest, CapsLogits) {
  LoadedLinear loaded(device(), compiler(), {8, 48, 3, 8}, LinearEpilogue::kLogits);
  expect_right_logits(device(), &loaded);
}

TEST_F(ModelGpuTest, PacksAsTheReferenceDoes) {
  const Module module = load(quantize_source());
  expect_right_quantize(device(), device().kernel(module, "quantize_int4", 0));
}

TEST_F(ModelGpuTest, BitsOfATokenAreThoseOfTheHostDevice) {
  std::unique_ptr<Device> host;
  std::unique_ptr<Compiler> host_compiler;
  try {
    host = open_host_device({});
    host_compiler = open_compiler({.host = test_host_search()}, host->info().arch);
  } catch (const DeviceUnavailable& error) {
    if (is_cxx_required()) FAIL() << error.what();
    GTEST_SKIP() << error.what();
  }
  const LinearProblem all({1057, 2056}, 16, 11);
  LinearProblem one = all;
  one.num_tokens = 1;
  one.input.resize(one.shape.in_features);
  const auto run = [](Device& on, const Compiler& with, const KernelConfig& config,
                      const LinearProblem& problem) {
    LoadedLinear loaded(on, with, config, LinearEpilogue::kStore);
    return run_linear<std::uint16_t>(on, loaded.of(problem.shape, on.info().num_sms), problem);
  };
  const std::vector<std::uint16_t> expected = run(*host, *host_compiler, {16, 32, 2, 8}, all);
  EXPECT_EQ(run(device(), compiler(), {16, 48, 2, 8}, all), expected);
  const std::vector<std::uint16_t> bits = run(device(), compiler(), {8, 16, 5, 8}, one);
  EXPECT_TRUE(std::equal(bits.begin(), bits.end(), expected.begin()));
}

TEST_F(ModelGpuTest, ResidualIsTheReferenceRoundedWhereTheModelRounds) {
  for (const int hidden : {64, 1536, 5376, 8192}) {
    SCOPED_TRACE(hidden);
    const Source source = residual_source(hidden);
    const Module module = load(source);
    expect_right_residuals(device(), module, source, hidden);
  }
}

TEST_F(ModelGpuTest, PerLayerInputsAreTheReferenceRoundedWhereTheModelRounds) {
  for (const int width : {8, 256, 264}) {
    SCOPED_TRACE(width);
    const Source source = per_layer_source(width);
    const Module module = load(source);
    expect_right_per_layer(device(), module, source, width);
  }
}

TEST_F(ModelGpuTest, RouterChoosesTheMostProbableExperts) {
  for (const auto& [num_experts, top_k] : {std::pair(128, 8), {40, 3}, {5, 5}, {256, 32}, {1, 1}}) {
    SCOPED_TRACE(num_experts);
    const Source source = route_source(num_experts, top_k);
    const Module module = load(source);
    expect_right_routes(device(), device().kernel(module, source.symbols.front(), 0), num_experts,
                        top_k);
  }
}

TEST_F(ModelGpuTest, EveryEntryOfExpertsIsItsExpertsLayer) {
  for (const auto& [config, weights] : kConfigs) {
    expect_right_experts(device(), compiler(), config, weights);
  }
}

TEST_F(ModelGpuTest, BitsOfATokenOfExpertsDependOnNothingElse) {
  expect_bits_of_a_token(device(), compiler(), LinearWeights::kBf16);
  expect_bits_of_a_token(device(), compiler(), LinearWeights::kInt4);
}

TEST_F(ModelGpuTest, StepsAroundExpertsAreTheReferenceRoundedWhereTheModelRounds) {
  for (const int hidden : {64, 2816}) {
    SCOPED_TRACE(hidden);
    const Source source = expert_steps_source(hidden);
    const Module module = load(source);
    expect_right_expert_steps(device(), module, source, hidden);
  }
}

TEST_F(ModelGpuTest, ArgmaxTakesTheFirstOfTheLargest) {
  const Module module = load(argmax_source());
  expect_right_argmax(device(), device().kernel(module, "argmax", 0));
}

}  // namespace
}  // namespace attune
