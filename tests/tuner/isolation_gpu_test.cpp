// Bad candidates on a GPU, in real worker processes: each costs itself alone, and the context of
// this process stays usable throughout.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "jit/compile_pool.h"
#include "tests/support/require_gpu.h"
#include "tests/tuner/isolation.h"

namespace attune {
namespace {

class IsolationGpuTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    CompilePoolOptions options;
    options.compilers.nvrtc = test_nvrtc_search();
    pool_ = std::make_unique<CompilePool>(options);
    compiles_ = compile_service(compiler(), *pool_);
  }
  IsolationBench bench() const {
    return {*compiles_, device().info(), {.device = "0", .candidate_timeout_s = 10}};
  }
  // The context of this process, which serves.
  void expect_usable() const {
    const DeviceMem mem = device().allocate(1 << 20);
    device().fill_bytes(mem.ptr(), 7, mem.bytes(), nullptr);
    std::vector<std::byte> back(mem.bytes());
    device().copy_to_host(back, mem.ptr(), nullptr);
    EXPECT_EQ(back.back(), std::byte{7});
  }

  std::unique_ptr<CompilePool> pool_;
  std::unique_ptr<CompileService> compiles_;
};

TEST_F(IsolationGpuTest, BadCandidatesFirstInTheMiddleAndLastCostNothingElse) {
  IsolationBench bench = this->bench();
  const std::vector<Candidate> order = bench.candidates();
  const std::size_t n = order.size();
  ASSERT_GE(n, 14u);
  const std::size_t middle = n / 2;
  const TuneTrace clean = bench.tune();
  ASSERT_TRUE(clean.rejected.empty());
  EXPECT_EQ(clean.winner.candidate, order[IsolationBench::kFastest]);
  EXPECT_EQ(clean.num_started, 1);

  const std::vector<ExpectedRejection> bad = {
      {order[0], hang(), Stage::kVerify, RejectReason::kTimeout, "no answer in 10 s"},
      {order[1], trap(), Stage::kVerify, RejectReason::kLaunch, "CUDA_ERROR_"},
      {order[3], when_timed(endless_loop()), Stage::kTime, RejectReason::kTimeout,
       "no answer in 10 s"},
      {order[middle - 2], when_timed(wild_write_code()), Stage::kTime, RejectReason::kLaunch,
       "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {order[middle - 1], wild_write(), Stage::kVerify, RejectReason::kLaunch,
       "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {order[middle], misaligned_access(), Stage::kVerify, RejectReason::kLaunch,
       "CUDA_ERROR_MISALIGNED_ADDRESS"},
      {order[middle + 1], half_of_the_output(), Stage::kVerify, RejectReason::kWrongResult,
       "case="},
      {order[middle + 2], shared_memory_overrun(), Stage::kVerify, RejectReason::kLaunch,
       "CUDA_ERROR_"},
      {order[n - 3], wrong_by_a_percent(), Stage::kVerify, RejectReason::kWrongResult, "case="},
      {order[n - 2], nan_at_length_0(), Stage::kVerify, RejectReason::kWrongResult, "kv_len=0"},
      {order[n - 1], write_before_the_output(), Stage::kVerify, RejectReason::kOutOfBounds,
       "of out"}};
  for (const ExpectedRejection& one : bad) bench.plant(one);
  const TuneTrace trace = bench.tune();
  expect_only(bad, trace, clean);
  expect_usable();
}

TEST_F(IsolationGpuTest, LoadsFarMoreCandidatesThanOneProcessMay) {
  IsolationBench bench = this->bench();
  const TuneTrace clean = bench.tune();
  const std::size_t before = device().free_memory_bytes();
  bench.measure_options.loads_per_worker = 1;
  const TuneTrace trace = bench.tune();
  expect_only({}, trace, clean);
  EXPECT_GT(trace.num_started, static_cast<int>(bench.candidates().size()));
  EXPECT_LT(before - std::min(before, device().free_memory_bytes()), std::size_t{10} << 20);
}

}  // namespace
}  // namespace attune
