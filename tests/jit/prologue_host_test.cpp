// The prologue, its rotary angles and the state writes on the host device.
#include <gtest/gtest.h>

#include "tests/support/host_kernels.h"
#include "tests/support/prologue_run.h"
#include "tests/support/rope_run.h"
#include "tests/support/state_run.h"

namespace attune {
namespace {

// Share of the elements that fp32 arithmetic rounds to the other neighbour; seen are 3.5e-5.
constexpr double kMaxOtherNeighbour = 1e-4;

class PrologueHostTest : public testing::TestWithParam<PrologueKernelName> {
 protected:
  static void expect_right(const HostBench& bench) {
    const Source source = prologue_source(GetParam().head_dim, GetParam().layout);
    const Module module = bench.device->load(bench.compile(source));
    const Kernel kernel = bench.device->kernel(module, source.symbols.front(), 0);
    RoundingCount count;
    ASSERT_NO_FATAL_FAILURE(expect_right_prologues(*bench.device, kernel, GetParam(), &count));
    EXPECT_GT(count.compared, 100'000);
    EXPECT_LE(count.other_neighbour, kMaxOtherNeighbour * count.compared);
    RecordProperty("compared", count.compared);
    RecordProperty("other_neighbour", count.other_neighbour);
  }
};

TEST_P(PrologueHostTest, IsTheReferenceRoundedOnce) { expect_right(HostBench()); }

TEST_P(PrologueHostTest, BreaksNoRule) { expect_right(HostBench({.target = checked_target()})); }

INSTANTIATE_TEST_SUITE_P(Kernels, PrologueHostTest, testing::ValuesIn(prologue_kernels()),
                         [](const auto& instance) { return symbol_name_of(instance.param); });

// K of a unified row, put together from V and the rotated part, is K of a row of its own up to
// one rounding more.
TEST(UnifiedRow, HasAllOfK) {
  const HostBench bench;
  const Source source = prologue_source(512, KvLayout::kUnifiedPaged);
  const Module module = bench.device->load(bench.compile(source));
  PrologueRunner runner(*bench.device, bench.device->kernel(module, source.symbols.front(), 0));
  const PrologueProblem problem(KvLayout::kUnifiedPaged, 512, prologue_cases()[2]);
  const PrologueOutputs outputs = runner.run(problem, RowDivision::kPlanned);
  const auto k_cache = [&](int64 at) { return outputs.k_cache[at]; };
  for (int b = 0; b < problem.batch(); ++b) {
    const CachedRow row =
        read_cached_row(problem.map(), problem.layout, 512, problem.k_weight, problem.sequence[b],
                        1, problem.kv_len[b] + 2, k_cache, k_cache);
    const std::vector<double> k = problem.reference_k(b, 2, 1);
    const std::vector<double> v = problem.reference_v(b, 2, 1);
    for (int dim = 0; dim < 512; ++dim) {
      EXPECT_NEAR(row.k[dim], k[dim], std::abs(k[dim]) / 200 + 1e-6) << dim;
      EXPECT_NEAR(row.v[dim], v[dim], std::abs(v[dim]) / 200 + 1e-6) << dim;
    }
  }
}

TEST(RopeHost, AnglesOfAllPositionsAreAccurate) {
  const HostBench bench;
  const Module module = bench.device->load(bench.compile(rope_angles_source()));
  const Kernel kernel = bench.device->kernel(module, "rope_angles", 0);
  const std::vector<float> angles = rope_angles(31);
  const RopeError error = rope_error(angles, run_rope_angles(*bench.device, kernel, angles));
  EXPECT_LE(error.absolute, 0x1p-23);
  EXPECT_LE(error.ulp, 2);
  RecordProperty("absolute", std::to_string(error.absolute * 0x1p24) + " * 2^-24");
  RecordProperty("ulp", std::to_string(error.ulp));
}

TEST(StateHost, WritesTheNamedIntegersOnly) {
  const HostBench bench({.target = checked_target()});
  const Source source = state_source();
  const Module module = bench.device->load(bench.compile(source));
  expect_right_state(*bench.device, bench.device->kernel(module, source.symbols.front(), 0));
}

}  // namespace
}  // namespace attune
