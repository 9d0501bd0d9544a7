// The kernels of a model beside its attention on the host device.
#include <gtest/gtest.h>

#include "tests/support/host_kernels.h"
#include "tests/support/model_run.h"
#include "tests/support/per_layer_run.h"

namespace attune {
namespace {

constexpr KernelConfig kSmallConfig{.block_m = 8, .block_n = 16, .num_stages = 1, .num_warps = 8};

// Fewer panels than warps and more, a last panel that is not whole, fewer outputs than a CTA is
// worth, shares and passes of unequal sizes.
const std::vector<LinearShape> kShapes = {{64, 64},   {41, 96},   {5, 8},
                                          {200, 520}, {77, 1088}, {16, 2056}};

class LinearHostTest : public testing::TestWithParam<KernelConfig> {};

TEST_P(LinearHostTest, GivesTheProductRoundedOnce) {
  const HostBench bench({.target = checked_target()});
  LoadedLinear loaded(*bench.device, *bench.compiler, GetParam(), LinearEpilogue::kStore);
  unsigned seed = 1;
  for (const LinearShape& shape : kShapes) {
    for (const int num_sms : {1, 3, 132}) {
      const int num_tokens = 1 + static_cast<int>(seed * 5 % GetParam().block_m);
      SCOPED_TRACE(testing::Message() << shape.out_features << "x" << shape.in_features << " "
                                      << num_tokens << " tokens, " << num_sms << " SMs");
      const LinearProblem problem(shape, num_tokens, seed++);
      expect_right(problem,
                   run_linear<std::uint16_t>(*bench.device, loaded.of(shape, num_sms), problem));
      if (HasFailure()) return;
    }
  }
}

TEST_P(LinearHostTest, GivesGatedOutputs) {
  const HostBench bench({.target = checked_target()});
  for (const auto epilogue : {LinearEpilogue::kGeglu, LinearEpilogue::kSwiglu}) {
    LoadedLinear loaded(*bench.device, *bench.compiler, GetParam(), epilogue);
    unsigned seed = 100;
    for (LinearShape shape : kShapes) {
      shape.epilogue = epilogue;
      const LinearProblem problem(shape, GetParam().block_m, seed++);
      expect_right(problem, run_linear<std::uint16_t>(*bench.device, loaded.of(shape, 5), problem));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Configs, LinearHostTest,
    testing::Values(kSmallConfig,
                    KernelConfig{.block_m = 16, .block_n = 48, .num_stages = 2, .num_warps = 8}),
    [](const auto& instance) { return text_of(instance.param); });

TEST(LinearHost, PackedRowsGiveTheProductOfTheirNumbers) {
  const HostBench bench({.target = checked_target()});
  for (const KernelConfig& config :
       {KernelConfig{1, 32, 3, 16}, KernelConfig{8, 16, 1, 16}, KernelConfig{16, 16, 2, 16}}) {
    for (const auto epilogue : {LinearEpilogue::kStore, LinearEpilogue::kGeglu}) {
      LoadedLinear loaded(*bench.device, *bench.compiler, config, epilogue, LinearWeights::kInt4);
      unsigned seed = 40;
      for (const LinearShape& shape : {LinearShape{64, 64}, LinearShape{41, 96}, LinearShape{5, 8},
                                       LinearShape{77, 2312}, LinearShape{16, 4096}}) {
        LinearProblem problem({shape.out_features, shape.in_features, epilogue},
                              std::max(1, config.block_m - 1), seed++);
        problem.pack();
        SCOPED_TRACE(testing::Message() << shape.out_features << "x" << shape.in_features);
        expect_right(problem, run_linear<std::uint16_t>(*bench.device, loaded.of(problem.shape, 3),
                                                        problem));
        if (HasFailure()) return;
      }
    }
  }
}

TEST(LinearHost, BitsOfPackedRowsDependOnNothingElse) {
  const HostBench bench;
  LinearProblem all({45, 2312}, 16, 8);
  all.pack();
  LoadedLinear many(*bench.device, *bench.compiler, {16, 48, 1, 16}, LinearEpilogue::kStore,
                    LinearWeights::kInt4);
  LoadedLinear few(*bench.device, *bench.compiler, {8, 16, 2, 16}, LinearEpilogue::kStore,
                   LinearWeights::kInt4);
  LoadedLinear alone(*bench.device, *bench.compiler, {1, 48, 2, 16}, LinearEpilogue::kStore,
                     LinearWeights::kInt4);
  const auto expected = run_linear<std::uint16_t>(*bench.device, many.of(all.shape, 1), all);
  for (const int token : {0, 7, 15}) {
    LinearProblem one = all;
    one.num_tokens = 1;
    one.input.assign(all.input.begin() + token * all.shape.in_features,
                     all.input.begin() + (token + 1) * all.shape.in_features);
    for (LoadedLinear* const loaded : {&few, &alone}) {
      const auto bits = run_linear<std::uint16_t>(*bench.device, loaded->of(all.shape, 5), one);
      EXPECT_TRUE(std::equal(bits.begin(), bits.end(), expected.begin() + token * 45)) << token;
    }
  }
}

TEST(QuantizeHost, PacksAsTheReferenceDoes) {
  const HostBench bench({.target = checked_target()});
  const Module module = bench.device->load(bench.compile(quantize_source()));
  expect_right_quantize(*bench.device, bench.device->kernel(module, "quantize_int4", 0));
}

// What makes verify give the tokens of decode: a row's bits are those it has alone, with any config
// and any number of CTAs.
TEST(LinearHost, BitsOfATokenDependOnNothingElse) {
  const HostBench bench;
  const LinearShape shape{77, 1288};
  const LinearProblem all(shape, 16, 7);
  const auto bits_of = [&](const KernelConfig& config, int num_sms, int first, int count) {
    LinearProblem some = all;
    some.num_tokens = count;
    some.input.assign(all.input.begin() + first * shape.in_features,
                      all.input.begin() + (first + count) * shape.in_features);
    LoadedLinear loaded(*bench.device, *bench.compiler, config, LinearEpilogue::kStore);
    return run_linear<std::uint16_t>(*bench.device, loaded.of(shape, num_sms), some);
  };
  const auto expected = bits_of({16, 48, 2, 8}, 3, 0, 16);
  const auto expect_same = [&](const std::vector<std::uint16_t>& bits, int first) {
    ASSERT_EQ(bits.size() % shape.out_features, 0u);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      ASSERT_EQ(bits[i], expected[first * shape.out_features + i]) << i;
    }
  };
  expect_same(bits_of({16, 16, 2, 8}, 1, 0, 16), 0);
  expect_same(bits_of({16, 64, 1, 8}, 132, 3, 13), 3);
  expect_same(bits_of({8, 32, 4, 8}, 132, 8, 8), 8);
  for (const int token : {0, 5, 15}) expect_same(bits_of({8, 48, 2, 8}, 7, token, 1), token);
}

TEST(LinearHost, CapsLogits) {
  const HostBench bench;
  LoadedLinear loaded(*bench.device, *bench.compiler, kSmallConfig, LinearEpilogue::kLogits);
  expect_right_logits(*bench.device, &loaded);
}

TEST(LinearHost, RefusesMoreTokensThanItsKernelTakes) {
  const HostBench bench;
  LoadedLinear loaded(*bench.device, *bench.compiler, kSmallConfig, LinearEpilogue::kStore);
  const LinearProblem problem({64, 64}, 9, 1);
  EXPECT_THROW(run_linear<std::uint16_t>(*bench.device, loaded.of(problem.shape, 1), problem),
               InvalidArgument);
}

TEST(ResidualHost, IsTheReferenceRoundedWhereTheModelRounds) {
  const HostBench bench({.target = checked_target()});
  for (const int hidden : {64, 1536, 5376, 8192}) {
    SCOPED_TRACE(hidden);
    const Source source = residual_source(hidden);
    const Module module = bench.device->load(bench.compile(source));
    expect_right_residuals(*bench.device, module, source, hidden);
  }
  EXPECT_THROW(residual_source(8200), InvalidArgument);
  EXPECT_THROW(residual_source(12), InvalidArgument);
}

TEST(PerLayerHost, IsTheReferenceRoundedWhereTheModelRounds) {
  const HostBench bench({.target = checked_target()});
  for (const int width : {8, 256, 264}) {
    SCOPED_TRACE(width);
    const Source source = per_layer_source(width);
    const Module module = bench.device->load(bench.compile(source));
    expect_right_per_layer(*bench.device, module, source, width);
  }
  EXPECT_THROW(per_layer_source(1032), InvalidArgument);
  EXPECT_THROW(per_layer_source(12), InvalidArgument);
}

TEST(ArgmaxHost, TakesTheFirstOfTheLargest) {
  const HostBench bench({.target = checked_target()});
  const Module module = bench.device->load(bench.compile(argmax_source()));
  expect_right_argmax(*bench.device, bench.device->kernel(module, "argmax", 0));
}

}  // namespace
}  // namespace attune
