// The prologue on a GPU: against the reference in double, and its bits against the host device's.
#include <gtest/gtest.h>

#include "tests/support/host_kernels.h"
#include "tests/support/prologue_run.h"
#include "tests/support/require_cxx.h"
#include "tests/support/require_gpu.h"
#include "tests/support/rope_run.h"
#include "tests/support/state_run.h"

namespace attune {
namespace {

constexpr double kMaxOtherNeighbour = 1e-4;  // as on the host device

// A kernel of one unit, compiled and loaded.
struct LoadedKernel {
  LoadedKernel(Device& device, const Compiler& compiler, const Source& source)
      : module(device.load(compiler.compile(source, device.info().arch))),
        kernel(device.kernel(module, source.symbols.front(), 0)) {}
  Module module;
  Kernel kernel;
};

class PrologueGpuTest : public GpuTest {
 protected:
  // The host device where there is a C++ compiler, else the test skips.
  void open_host() {
    try {
      host_ = open_host_device({});
      host_compiler_ = open_compiler({.host = test_host_search()}, host_->info().arch);
    } catch (const DeviceUnavailable& error) {
      if (is_cxx_required()) FAIL() << error.what();
      GTEST_SKIP() << error.what();
    }
  }

  std::unique_ptr<Device> host_;
  std::unique_ptr<Compiler> host_compiler_;
};

class PrologueKernelsGpuTest : public PrologueGpuTest,
                               public testing::WithParamInterface<PrologueKernelName> {};

TEST_P(PrologueKernelsGpuTest, IsTheReferenceRoundedOnce) {
  const Source source = prologue_source(GetParam().head_dim, GetParam().layout);
  const LoadedKernel loaded(device(), compiler(), source);
  RoundingCount count;
  ASSERT_NO_FATAL_FAILURE(expect_right_prologues(device(), loaded.kernel, GetParam(), &count));
  EXPECT_LE(count.other_neighbour, kMaxOtherNeighbour * count.compared);
  RecordProperty("compared", count.compared);
  RecordProperty("other_neighbour", count.other_neighbour);
}

TEST_P(PrologueKernelsGpuTest, HasTheBitsOfTheHostDevice) {
  open_host();
  if (IsSkipped() || HasFatalFailure()) return;
  const Source source = prologue_source(GetParam().head_dim, GetParam().layout);
  const LoadedKernel on_gpu(device(), compiler(), source);
  const LoadedKernel on_host(*host_, *host_compiler_, source);
  PrologueRunner gpu(device(), on_gpu.kernel);
  PrologueRunner host(*host_, on_host.kernel);
  for (const PrologueCase& c : prologue_cases()) {
    const PrologueProblem problem(GetParam().layout, GetParam().head_dim, c);
    EXPECT_TRUE(same_bits(gpu.run(problem, RowDivision::kPlanned),
                          host.run(problem, RowDivision::kPlanned)))
        << c.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, PrologueKernelsGpuTest, testing::ValuesIn(prologue_kernels()),
                         [](const auto& instance) { return symbol_name_of(instance.param); });

TEST_F(PrologueGpuTest, AnglesOfAllPositionsAreAccurate) {
  const LoadedKernel loaded(device(), compiler(), rope_angles_source());
  const std::vector<float> angles = rope_angles(1);
  const RopeError error = rope_error(angles, run_rope_angles(device(), loaded.kernel, angles));
  EXPECT_LE(error.absolute, 0x1p-23);
  EXPECT_LE(error.ulp, 2);
}

TEST_F(PrologueGpuTest, AnglesHaveTheBitsOfTheHostDevice) {
  open_host();
  if (IsSkipped() || HasFatalFailure()) return;
  const LoadedKernel on_gpu(device(), compiler(), rope_angles_source());
  const LoadedKernel on_host(*host_, *host_compiler_, rope_angles_source());
  const std::vector<float> angles = rope_angles(31);
  const RopeResults gpu = run_rope_angles(device(), on_gpu.kernel, angles);
  const RopeResults host = run_rope_angles(*host_, on_host.kernel, angles);
  EXPECT_TRUE(gpu.sines == host.sines);
  EXPECT_TRUE(gpu.cosines == host.cosines);
}

TEST_F(PrologueGpuTest, StateWritesTheNamedIntegersOnly) {
  const LoadedKernel loaded(device(), compiler(), state_source());
  expect_right_state(device(), loaded.kernel);
}

}  // namespace
}  // namespace attune
