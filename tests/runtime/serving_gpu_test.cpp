#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "cache/tune_store.h"
#include "jit/driver.h"
#include "tests/runtime/growing_step.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/require_gpu.h"
#include "tests/support/temporary_folder.h"
#include "tuner/verify.h"

namespace attune {
namespace {

constexpr const char* kDecode = "decode/b1/q1/kv1-8192/h32x4/d512/contiguous/bf16";
constexpr const char* kDecodeBatch = "decode/b2/q1/kv1-8192/h6x2/d128/softcap/contiguous/bf16";
constexpr const char* kDecodeRing = "decode/b1/q1/kv1-8192/h32x16/d256/w1024/ring/bf16";
constexpr const char* kVerify = "verify/b2/q8/kv1-8192/h8x1/d512/contiguous/bf16";
constexpr const char* kVerifyRing = "verify/b1/q8/kv1-8192/h32x16/d256/w1024/ring/bf16";
constexpr int kLongest = 4500;
constexpr int kRingCapacity = 1040;
constexpr Growth kGrowth{.longest = kLongest, .ring_capacity = kRingCapacity};
static_assert(kLongest >= kLongKvLen);

class ServingGpuTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    options.cache_path = (folder_.path() / "tune.db").string();
    options.nvrtc_path = test_nvrtc_search().nvrtc_path;
    if (const char* worker = std::getenv("ATTUNE_WORKER")) options.worker_path = worker;
    if (const char* worker = std::getenv("ATTUNE_MEASURE_WORKER")) {
      options.measure_worker_path = worker;
    }
  }
  Options options;

 private:
  TemporaryFolder folder_;
};

class GrowingGraphTest : public ServingGpuTest,
                         public ::testing::WithParamInterface<const char*> {};

TEST_P(GrowingGraphTest, OneCapturedLaunchIsRightAtEveryLength) {
  Engine engine(options);
  const Attention attention = engine.prepare(GetParam());
  engine.seal();
  expect_right_while_growing(engine.device(), attention, kGrowth);
}

INSTANTIATE_TEST_SUITE_P(Gemma, GrowingGraphTest,
                         ::testing::Values(kDecode, kDecodeBatch, kDecodeRing, kVerify,
                                           kVerifyRing));

// Captures in any of the three modes (global, thread-local, relaxed) and runs what was recorded.
TEST_F(ServingGpuTest, LaunchesAreRecordedInEveryCaptureMode) {
  Engine engine(options);
  const Attention attention = engine.prepare(kDecode);
  engine.seal();
  Device& gpu = engine.device();
  GrowingStep step(gpu, attention, kLongest);
  const Stream stream = gpu.create_stream();
  const auto driver = load_driver();
  CuHandle context = nullptr;
  ASSERT_EQ(driver->primary_ctx_retain(&context, 0), kCudaSuccess);
  ASSERT_EQ(driver->ctx_push_current(context), kCudaSuccess);
  for (const int mode : {0, 1, 2}) {
    step.grow_to(1000 + mode, stream.get());
    gpu.synchronize(stream.get());
    CuHandle graph = nullptr;
    CuHandle exec = nullptr;
    ASSERT_EQ(driver->stream_begin_capture(stream.get(), mode), kCudaSuccess);
    EXPECT_NO_THROW(attention.launch(step.args(), stream.get()));
    ASSERT_EQ(driver->stream_end_capture(stream.get(), &graph), kCudaSuccess) << "mode=" << mode;
    ASSERT_EQ(driver->graph_instantiate(&exec, graph, 0), kCudaSuccess);
    ASSERT_EQ(driver->graph_launch(exec, stream.get()), kCudaSuccess);
    EXPECT_LE(step.error(stream.get()), kMaxRelativeL2) << "mode=" << mode;
    driver->graph_exec_destroy(exec);
    driver->graph_destroy(graph);
  }
  driver->ctx_pop_current(&context);
  driver->primary_ctx_release(0);
}

TEST_F(ServingGpuTest, ABadArgumentLeavesTheCaptureValid) {
  Engine engine(options);
  const Attention attention = engine.prepare(kDecode);
  Device& gpu = engine.device();
  GrowingStep step(gpu, attention, kLongest);
  const Stream stream = gpu.create_stream();
  step.grow_to(777, stream.get());
  const Graph graph = gpu.capture(stream.get(), [&] {
    AttentionArgs bad = step.args();
    bad.workspace += 16;
    EXPECT_THROW(attention.launch(bad, stream.get()), InvalidArgument);
    attention.launch(step.args(), stream.get());
  });
  gpu.launch(graph, stream.get());
  EXPECT_LE(step.error(stream.get()), kMaxRelativeL2);
}

TEST_F(ServingGpuTest, AfterSealOnlyLaunchesReachTheDriver) {
  auto forwarding = std::make_unique<ForwardingDevice>(open_cuda_device(0));
  std::set<std::string> calls;
  forwarding->on_call = [&](std::string_view call) { calls.emplace(call); };
  options.strict = true;
  Engine engine(options, std::move(forwarding));
  const Attention decode = engine.prepare(kDecode);
  const Attention verify = engine.prepare(kVerifyRing);
  engine.seal();
  GrowingStep decode_step(device(), decode, kLongest);
  GrowingStep verify_step(device(), verify, kRingCapacity);
  const Stream stream = device().create_stream();
  decode_step.grow_to(3000, stream.get());
  verify_step.grow_to(3000, stream.get());
  const Counters before = engine.counters();
  calls.clear();
  engine.prepare(kDecode).launch(decode_step.args(), stream.get());
  verify.launch(verify_step.args(), stream.get());
  calls.erase("tensor_map");  // arithmetic, of which the GPU knows nothing
  EXPECT_EQ(calls, std::set<std::string>{"launch"});
  EXPECT_EQ(engine.counters().compiles, before.compiles);
  EXPECT_EQ(engine.counters().late_prepares, 0u);
  EXPECT_LE(decode_step.error(stream.get()), kMaxRelativeL2);
  EXPECT_LE(verify_step.error(stream.get()), kMaxRelativeL2);
}

TEST_F(ServingGpuTest, TunesAMissInPrepareAndCapturesAtOnce) {
  constexpr const char* kSmall = "decode/b1/q1/kv256-512/h8x2/d64/contiguous/bf16";
  options.on_miss = OnMiss::kTune;
  options.tune_budget_s = 60;
  std::string warnings;
  options.log = [&](const std::string& message) { warnings += message + "\n"; };
  Engine engine(options);
  const Attention attention = engine.prepare(kSmall);
  EXPECT_EQ(attention.served(), Served::kExact) << warnings;
  engine.seal();
  Device& gpu = engine.device();
  GrowingStep step(gpu, attention, 512);
  const Stream stream = gpu.create_stream();
  step.grow_to(400, stream.get());
  const Graph graph =
      gpu.capture(stream.get(), [&] { attention.launch(step.args(), stream.get()); });
  gpu.launch(graph, stream.get());
  EXPECT_LE(step.error(stream.get()), kMaxRelativeL2);

  Engine second(options);  // another process would find the winner too
  EXPECT_EQ(second.prepare(kSmall).served(), Served::kExact);
  EXPECT_EQ(second.counters().compiles, 0u);
}

TEST_F(ServingGpuTest, ADamagedWinnerGivesTheDefault) {
  std::vector<std::string> warnings;
  options.log = [&](const std::string& message) { warnings.push_back(message); };
  const Problem problem = Problem::parse(kDecode);
  const Candidate candidate = Candidate::parse("splitkv/m16n32s1w8/x33");
  Winner winner;
  winner.problem = problem;
  winner.candidate = candidate;
  winner.toolchain = {find_family(candidate.family)->template_digest(), compiler().version(),
                      compile_options(device().info().arch)};
  winner.binary.cubin.assign(4096, std::byte{0x5a});  // no code; ends as text does
  winner.binary.cubin.back() = std::byte{0};
  winner.binary.content = digest_of(winner.binary.cubin);
  winner.binary.key = digest_of("damaged");
  winner.binary.arch = device().info().arch;
  winner.binary.compiler_version = compiler().version();
  TuneStore::open(options.cache_path)->put_winner(device().info(), winner);
  Engine engine(options);
  const Attention attention = engine.prepare(kDecode);
  EXPECT_EQ(attention.served(), Served::kDefault);
  EXPECT_EQ(warnings.size(), 1u);
  GrowingStep step(engine.device(), attention, kLongest);
  step.grow_to(2000, nullptr);
  attention.launch(step.args(), nullptr);
  EXPECT_LE(step.error(nullptr), kMaxRelativeL2);
}

}  // namespace
}  // namespace attune
