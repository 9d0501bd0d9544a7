// Bad candidates on the host device, in real worker processes: each costs itself alone.
#include <signal.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "jit/compile_pool.h"
#include "jit/host/host_info.h"
#include "tests/support/processes.h"
#include "tests/support/require_cxx.h"
#include "tests/tuner/isolation.h"

namespace attune {
namespace {

constexpr const char* kWorker = "attune-measure-worker";
// Four candidates.
const Problem kFew = Problem::parse("decode/b1/q1/kv64-256/h1x1/d64/invariant/contiguous/bf16");

class IsolationHostTest : public HostCompilerTest {
 protected:
  void SetUp() override {
    HostCompilerTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    CompilePoolOptions options;
    if (const char* path = std::getenv("ATTUNE_WORKER")) options.worker_path = path;
    options.compilers.host = test_host_search();
    pool_ = std::make_unique<CompilePool>(options);
    compiles_ = compile_service(compiler(), *pool_);
  }
  IsolationBench bench(const Problem& problem) const {
    return {*compiles_, host_device_info(), {.device = "host", .candidate_timeout_s = 6}, problem};
  }
  // Of the worker that runs now.
  static void kill_worker(int number) {
    for (const pid_t pid : children_named(kWorker)) kill(pid, number);
  }

  std::unique_ptr<CompilePool> pool_;
  std::unique_ptr<CompileService> compiles_;
};

// Dies in the rematch: the first pass takes 20 launches of the timer.
Bug wild_write_in_the_rematch() {
  return when_timed(std::string("    static int num_launches = 0;\n"
                                "    if (threadIdx.x == 0 && ++num_launches > 24) {\n") +
                    std::string(wild_write_code()) + "\n    }");
}

TEST_F(IsolationHostTest, BadCandidatesFirstInTheMiddleAndLastCostNothingElse) {
  IsolationBench bench = this->bench(kIsolationProblem);
  const std::vector<Candidate> order = bench.candidates();
  const std::size_t n = order.size();
  ASSERT_GE(n, 14u);
  const std::size_t middle = n / 2;
  const TuneTrace clean = bench.tune();
  ASSERT_EQ(clean.timed.size(), n);
  ASSERT_TRUE(clean.rejected.empty());
  EXPECT_EQ(clean.winner.candidate, order[IsolationBench::kFastest]);
  EXPECT_EQ(clean.num_started, 1);

  const std::vector<ExpectedRejection> bad = {
      {order[0], hang(), Stage::kVerify, RejectReason::kTimeout, "no answer in 6 s"},
      {order[1], trap(), Stage::kVerify, RejectReason::kLaunch, "trap"},
      {order[3], wild_write_in_the_rematch(), Stage::kTime, RejectReason::kLaunch, "signal 11 ("},
      {order[middle - 2], when_timed(wild_write_code()), Stage::kTime, RejectReason::kLaunch,
       "signal 11 ("},
      {order[middle - 1], wild_write(), Stage::kVerify, RejectReason::kLaunch, "signal 11 ("},
      {order[middle], misaligned_access(), Stage::kVerify, RejectReason::kLaunch,
       "CUDA_ERROR_MISALIGNED_ADDRESS"},
      {order[middle + 1], half_of_the_output(), Stage::kVerify, RejectReason::kWrongResult,
       "case="},
      {order[n - 3], wrong_by_a_percent(), Stage::kVerify, RejectReason::kWrongResult, "case="},
      {order[n - 2], nan_at_length_0(), Stage::kVerify, RejectReason::kWrongResult, "kv_len=0"},
      {order[n - 1], write_before_the_output(), Stage::kVerify, RejectReason::kOutOfBounds,
       "of out"}};
  for (const ExpectedRejection& one : bad) bench.plant(one);
  const TuneTrace trace = bench.tune();
  expect_only(bad, trace, clean);
  EXPECT_GT(trace.num_started, 5);
}

TEST_F(IsolationHostTest, AWorkerKilledFromOutsideCostsNothing) {
  IsolationBench bench = this->bench(kFew);
  const TuneTrace clean = bench.tune();
  ASSERT_EQ(clean.timed.size(), 4u);
  int signal = 0, num_polls = 0, num_kills = 0;
  bench.tune_options.progress = [&](const TuneProgress& step) {
    num_polls = 0;
    signal = step.phase == "verify" && step.done == 1 ? SIGKILL
             : step.phase == "time" && step.done == 5 ? SIGTERM
                                                      : 0;
  };
  bench.tune_options.stop = [&] {  // polled before a candidate, then while it runs
    if (signal != 0 && ++num_polls == 2) {
      kill_worker(signal);
      ++num_kills;
    }
    return false;
  };
  const TuneTrace trace = bench.tune();
  EXPECT_EQ(num_kills, 2);
  expect_only({}, trace, clean);
  EXPECT_EQ(trace.num_started, 3);
}

TEST_F(IsolationHostTest, AWorkerEndsWhenItHasLoadedEnough) {
  IsolationBench bench = this->bench(kFew);
  const TuneTrace clean = bench.tune();
  bench.measure_options.loads_per_worker = 1;
  const TuneTrace trace = bench.tune();
  expect_only({}, trace, clean);
  EXPECT_GE(trace.num_started, 8);  // each verified in one, then timed in others
  EXPECT_TRUE(children_named(kWorker).empty());
}

TEST_F(IsolationHostTest, AHangIsEndedAsSoonAsItIsStopped) {
  IsolationBench bench = this->bench(kFew);
  bench.measure_options.candidate_timeout_s = 0;  // a minute
  bench.plant({bench.candidates()[1], hang(), {}, {}, {}});
  std::chrono::steady_clock::time_point pressed;
  std::jthread presser;
  std::atomic<bool> stop = false;
  bench.tune_options.progress = [&](const TuneProgress& step) {
    if (step.phase != "verify" || step.done != 1) return;
    presser = std::jthread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      pressed = std::chrono::steady_clock::now();
      stop = true;
    });
  };
  bench.tune_options.stop = [&] { return stop.load(); };
  const TuneTrace trace = bench.tune();
  EXPECT_LT(std::chrono::steady_clock::now() - pressed, std::chrono::seconds(3));
  EXPECT_TRUE(trace.report.interrupted);
  EXPECT_TRUE(trace.rejected.empty());
  EXPECT_TRUE(children_named(kWorker).empty());
}

}  // namespace
}  // namespace attune
