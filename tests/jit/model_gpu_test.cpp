// The kernels of a model beside its attention on a GPU: against references in double, and their bits
// against the host device's.
#include <gtest/gtest.h>

#include "tests/support/host_kernels.h"
#include "tests/support/model_run.h"
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

struct LoadedLinear {
  LoadedLinear(Device& on, const Compiler& compiler, const KernelConfig& config,
               LinearEpilogue epilogue)
      : device(on),
        source(linear_source(config, epilogue)),
        module(on.load(compiler.compile(source, on.info().arch))) {
    linear.config = config;
    linear.kernel =
        on.kernel(module, source.symbols.front(), linear_smem_bytes(config, LinearWeights::kBf16));
  }
  std::vector<std::uint16_t> run(const LinearProblem& problem) {
    linear.shape = problem.shape;
    linear.plan = plan_linear(problem.shape, linear.config, device.info().num_sms);
    return run_linear<std::uint16_t>(device, linear, problem);
  }
  Device& device;
  Source source;
  Module module;
  LinearKernel linear;
};

// Shares of more than one pass, panels that are no multiple of the warps, a last one that is not
// whole.
const std::vector<LinearShape> kShapes = {{5376, 64}, {1057, 2056}, {5, 8}, {6500, 584}};

TEST_F(ModelGpuTest, LinearGivesTheProductRoundedOnce) {
  for (const KernelConfig& config : {KernelConfig{8, 48, 4, 8}, KernelConfig{16, 16, 5, 8}}) {
    for (const auto epilogue : {LinearEpilogue::kStore, LinearEpilogue::kGeglu}) {
      LoadedLinear loaded(device(), compiler(), config, epilogue);
      for (LinearShape shape : kShapes) {
        SCOPED_TRACE(text_of(config) + " " + std::to_string(shape.out_features));
        shape.epilogue = epilogue;
        const LinearProblem problem(shape, config.block_m - 1, 5);
        expect_right(problem, loaded.run(problem));
      }
    }
  }
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
  LoadedLinear on_host(*host, *host_compiler, {16, 32, 2, 8}, LinearEpilogue::kStore);
  LoadedLinear on_gpu(device(), compiler(), {16, 48, 3, 8}, LinearEpilogue::kStore);
  LoadedLinear alone(device(), compiler(), {8, 16, 5, 8}, LinearEpilogue::kStore);
  const std::vector<std::uint16_t> expected = on_host.run(all);
  EXPECT_EQ(on_gpu.run(all), expected);
  const std::vector<std::uint16_t> bits = alone.run(one);
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

TEST_F(ModelGpuTest, ArgmaxTakesTheFirstOfTheLargest) {
  const Module module = load(argmax_source());
  expect_right_argmax(device(), device().kernel(module, "argmax", 0));
}

}  // namespace
}  // namespace attune
