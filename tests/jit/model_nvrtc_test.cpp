// The kernels of a model beside its attention compile without spills, stack or notes.
#include <gtest/gtest.h>

#include "jit/model_source.h"
#include "templates/linear_config.h"
#include "tests/support/require_nvrtc.h"

namespace attune {
namespace {

// `stack_bytes`: what ptxas 13.0 gives every kernel with bulk tensor copies for sm_120.
void expect_clean(const Compiler& compiler, const Source& source, const std::string& arch,
                  int max_registers, int stack_bytes = 0) {
  SCOPED_TRACE(source.symbols.front());
  const Binary binary = compiler.compile(source, arch);
  EXPECT_EQ(binary.kernels.size(), source.symbols.size());
  for (const std::string& note : binary.notes) ADD_FAILURE() << note;
  for (const KernelResources& kernel : binary.kernels) {
    EXPECT_EQ(kernel.spill_store_bytes + kernel.spill_load_bytes, 0);
    EXPECT_LE(kernel.stack_bytes, stack_bytes);
    EXPECT_LE(kernel.registers, max_registers);
  }
}

class LinearCompileTest : public NvrtcTest, public testing::WithParamInterface<const char*> {};

// Bulk tensor copies begin with sm_90.
TEST_P(LinearCompileTest, SpillsNothing) {
  for (const auto epilogue :
       {LinearEpilogue::kStore, LinearEpilogue::kSwiglu, LinearEpilogue::kLogits}) {
    const int stack_bytes = std::string_view(GetParam()) == "sm_120" ? 8 : 0;
    for (const KernelConfig& config :
         {KernelConfig{8, 16, 4, 8}, KernelConfig{8, 48, 3, 8}, KernelConfig{16, 64, 2, 8}}) {
      expect_clean(compiler(), linear_source(config, epilogue, LinearWeights::kBf16), GetParam(),
                   255, stack_bytes);
    }
    for (const KernelConfig& config :
         {KernelConfig{1, 48, 2, 16}, KernelConfig{8, 48, 2, 16}, KernelConfig{16, 16, 2, 16}}) {
      expect_clean(compiler(), linear_source(config, epilogue, LinearWeights::kInt4), GetParam(),
                   128, stack_bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, LinearCompileTest, testing::Values("sm_90a", "sm_100a", "sm_120"),
                         [](const auto& instance) { return std::string(instance.param); });

// Its model has linear layers, and so begins with sm_90 too.
TEST_P(LinearCompileTest, PerLayerInputsSpillNothing) {
  for (const int width : {256, 1024}) {
    expect_clean(compiler(), per_layer_source(width), GetParam(), 96);
  }
}

TEST_P(LinearCompileTest, ExpertsSpillNothing) {
  const int stack_bytes = std::string_view(GetParam()) == "sm_120" ? 8 : 0;
  expect_clean(compiler(),
               experts_source({8, 48, 3, 8}, LinearEpilogue::kStore, LinearWeights::kBf16),
               GetParam(), 255, stack_bytes);
  expect_clean(compiler(),
               experts_source({16, 48, 2, 8}, LinearEpilogue::kGeglu, LinearWeights::kBf16),
               GetParam(), 255, stack_bytes);
  expect_clean(compiler(),
               experts_source({16, 16, 2, 16}, LinearEpilogue::kGeglu, LinearWeights::kInt4),
               GetParam(), 255, stack_bytes);
  expect_clean(compiler(),
               experts_source({1, 48, 2, 16}, LinearEpilogue::kGeglu, LinearWeights::kInt4),
               GetParam(), 128, stack_bytes);
  for (const int hidden : {2816, 8192}) {
    expect_clean(compiler(), expert_steps_source(hidden), GetParam(), 168);
  }
  for (const int num_experts : {128, 256}) {
    expect_clean(compiler(), route_source(num_experts, 8), GetParam(), 96);
  }
}

class ResidualCompileTest : public NvrtcTest, public testing::WithParamInterface<const char*> {};

TEST_P(ResidualCompileTest, SpillsNothing) {
  for (const int hidden : {1536, 5376, 8192}) {
    expect_clean(compiler(), residual_source(hidden), GetParam(), 168);
  }
  expect_clean(compiler(), argmax_source(), GetParam(), 64);
  expect_clean(compiler(), quantize_source(), GetParam(), 64);
  expect_clean(compiler(), dequantize_source(), GetParam(), 64);
  expect_clean(compiler(), gate_source(LinearEpilogue::kGeglu), GetParam(), 64);
  expect_clean(compiler(), gate_source(LinearEpilogue::kSwiglu), GetParam(), 64);
}

INSTANTIATE_TEST_SUITE_P(All, ResidualCompileTest, testing::Values("sm_80", "sm_90a", "sm_120"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace attune
