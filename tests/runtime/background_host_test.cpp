// OnMiss::kBackground whole, on the host device: the real worker tunes while the engine serves.
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cache/tune_store.h"
#include "jit/host_device.h"
#include "jit/source.h"
#include "runtime/dispatch.h"
#include "tests/runtime/background_fixture.h"
#include "tests/runtime/growing_step.h"
#include "tests/support/require_cxx.h"
#include "tuner/compile_stage.h"
#include "tuner/space.h"
#include "tuner/timer.h"

namespace attune {
namespace {

// Few candidates, so that the tune takes seconds.
constexpr const char* kDecode = "decode/b1/q1/kv64-256/h1x1/d64/invariant/contiguous/bf16";
constexpr int kLongest = 256;

class BackgroundHostTest : public HostCompilerTest {
 protected:
  void SetUp() override {
    HostCompilerTest::SetUp();
    options.device = "host";
    options.cache_path = (folder_.path() / "tune.db").string();
    options.cxx_path = test_host_search().cxx;
    options.on_miss = OnMiss::kBackground;
    options.tune_budget_s = 200;  // of a busy machine
    if (const char* path = std::getenv("ATTUNE_WORKER")) options.worker_path = path;
    if (const char* path = std::getenv("ATTUNE_TUNE_WORKER")) options.tune_worker_path = path;
    if (const char* path = std::getenv("ATTUNE_MEASURE_WORKER")) {
      options.measure_worker_path = path;
    }
    options.log = [this](const std::string& message) { warnings.push_back(message); };
  }

  // A candidate that a tune could have picked, but not the default.
  Candidate other_candidate(const DeviceInfo& device) const {
    const Problem problem = Problem::parse(kDecode);
    const Candidate by_default = default_candidate(problem, device);
    for (const Candidate& one : candidate_space(problem, device).kept) {
      if (one.config != by_default.config) return one;
    }
    return by_default;
  }
  // A cache file with a winner of kDecode that nobody measured.
  std::string cache_with_winner(const DeviceInfo& device) const {
    const Problem problem = Problem::parse(kDecode);
    Winner winner;
    winner.problem = problem;
    winner.candidate = other_candidate(device);
    winner.toolchain =
        toolchain_of(known_family(winner.candidate.family), device.arch, compiler().version());
    winner.binary =
        compiler().compile(attention_source(winner.candidate.variant(problem)), device.arch);
    winner.admission.reference = "none";
    winner.method = kTimingMethod;
    const std::string path = (folder_.path() / "winner.db").string();
    TuneStore::open(path)->put_winner(device, winner);
    const std::string copy = (folder_.path() / "exported.db").string();
    TuneStore::open(path)->export_to(copy);
    return copy;
  }

  OwnTmpdir tmpdir;
  Options options;
  std::vector<std::string> warnings;

 private:
  TemporaryFolder folder_;
};

std::vector<std::byte> output_of(Device& device, const GrowingStep& step, std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  device.copy_to_host(out, step.args().out, nullptr);
  return out;
}

TEST_F(BackgroundHostTest, TheDefaultServesUntilTheTunedWinnerIsSwappedIn) {
  Engine engine(options);
  const Attention attention = engine.prepare(kDecode);
  EXPECT_EQ(attention.served(), Served::kDefault);
  engine.seal();
  Device& device = engine.device();
  GrowingStep step(device, attention, kLongest);
  const Stream stream = device.create_stream();
  const Graph graph =
      device.capture(stream.get(), [&] { attention.launch(step.args(), stream.get()); });
  step.grow_to(200, nullptr);
  attention.launch(step.args(), nullptr);
  EXPECT_LE(step.error(nullptr), kMaxEdgeRelativeL2);
  const std::vector<std::byte> before = output_of(device, step, 64 * 2);

  ASSERT_TRUE(eventually([&] { return is_idle(engine.poll()); }, 280));
  ASSERT_EQ(engine.poll().ready, 1u) << (warnings.empty() ? "" : warnings.back());
  EXPECT_EQ(attention.served(), Served::kDefault);
  ASSERT_EQ(engine.swap(stream.get()).size(), 1u);
  EXPECT_EQ(attention.served(), Served::kExact);
  EXPECT_NE(attention.explain().find("the winner of this problem"), std::string::npos)
      << attention.explain();
  EXPECT_NE(attention.explain().find("measured   kv_len=256"), std::string::npos)
      << attention.explain();
  attention.launch(step.args(), nullptr);
  EXPECT_LE(step.error(nullptr), kMaxEdgeRelativeL2);

  device.fill_bytes(step.args().out, 0xff, before.size(), nullptr);
  device.launch(graph, stream.get());
  EXPECT_EQ(output_of(device, step, before.size()), before);
  EXPECT_EQ(engine.release_replaced(), 1u);
  attention.launch(step.args(), nullptr);
  EXPECT_LE(step.error(nullptr), kMaxEdgeRelativeL2);

  Engine next(options);  // as a later process does
  EXPECT_EQ(next.prepare(kDecode).served(), Served::kExact);
  EXPECT_TRUE(is_idle(next.poll()));
  EXPECT_TRUE(has_no_child());
  EXPECT_TRUE(tmpdir.is_empty());
}

TEST_F(BackgroundHostTest, AGraphOfTheReplacedKernelReplaysWithTheSameBits) {
  const ScriptedWorker worker("cp " + cache_with_winner(open_host_device()->info()) +
                              " \"$CACHE\"");
  options.tune_worker_path = worker.path();
  options.cache_path.clear();  // memory alone: the worker gets a file of its own
  Engine engine(options);
  const Attention attention = engine.prepare(kDecode);
  Device& device = engine.device();
  GrowingStep step(device, attention, kLongest);
  const Stream stream = device.create_stream();
  const Graph graph =
      device.capture(stream.get(), [&] { attention.launch(step.args(), stream.get()); });
  step.grow_to(250, nullptr);
  device.launch(graph, stream.get());
  const std::vector<std::byte> before = output_of(device, step, 64 * 2);
  const std::string by_default = attention.candidate_text();

  worker.go();
  ASSERT_TRUE(eventually([&] { return engine.poll().ready == 1; }));
  const std::vector<Swap> swaps = engine.swap(stream.get());
  ASSERT_EQ(swaps.size(), 1u) << (warnings.empty() ? "" : warnings.back());
  EXPECT_EQ(swaps[0].from, by_default);
  EXPECT_NE(swaps[0].to, by_default);
  EXPECT_TRUE(tmpdir.is_empty());  // the worker's own file is gone

  device.fill_bytes(step.args().out, 0xff, before.size(), nullptr);
  device.launch(graph, stream.get());
  EXPECT_EQ(output_of(device, step, before.size()), before);
  attention.launch(step.args(), nullptr);
  EXPECT_LE(step.error(nullptr), kMaxEdgeRelativeL2);
  EXPECT_EQ(engine.prepare(kDecode).served(), Served::kExact);
}

TEST_F(BackgroundHostTest, LaunchesOfOtherThreadsGoOnWhileASwapRuns) {
  const ScriptedWorker worker("cp " + cache_with_winner(open_host_device()->info()) +
                              " \"$CACHE\"");
  options.tune_worker_path = worker.path();
  options.cache_path.clear();
  Engine engine(options);
  const Attention attention = engine.prepare(kDecode);
  std::atomic<bool> stop = false;
  std::atomic<int> num_launches = 0;
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<GrowingStep>> steps;
  for (int i = 0; i < 2; ++i) {
    auto& step =
        *steps.emplace_back(std::make_unique<GrowingStep>(engine.device(), attention, kLongest));
    step.grow_to(100, nullptr);
    threads.emplace_back([&, copy = attention] {
      while (!stop) {
        copy.launch(step.args(), nullptr);
        ++num_launches;
      }
    });
  }
  EXPECT_TRUE(eventually([&] { return num_launches > 4; }));
  worker.go();
  EXPECT_TRUE(eventually([&] { return engine.poll().ready == 1; }));
  EXPECT_EQ(engine.swap(nullptr).size(), 1u);
  const int at_swap = num_launches;
  EXPECT_TRUE(eventually([&] { return num_launches > at_swap + 4; }));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(engine.release_replaced(), 1u);
  for (const auto& step : steps) EXPECT_LE(step->error(nullptr), kMaxEdgeRelativeL2);
}

TEST_F(BackgroundHostTest, AWorkerKilledFromOutsideLeavesTheDefaultServing) {
  Engine engine(options);
  const Attention attention = engine.prepare(kDecode);
  std::vector<pid_t> workers;
  ASSERT_TRUE(
      eventually([&] { return !(workers = children_named("attune-tune-worker")).empty(); }));
  warnings.clear();
  kill(workers.front(), SIGKILL);
  ASSERT_TRUE(eventually([&] { return is_idle(engine.poll()); }));
  engine.poll();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("signal 9"), std::string::npos) << warnings[0];
  EXPECT_EQ(engine.counters().background_failures, 1u);
  EXPECT_EQ(engine.swap(nullptr).size(), 0u);
  GrowingStep step(engine.device(), attention, kLongest);
  step.grow_to(77, nullptr);
  attention.launch(step.args(), nullptr);
  EXPECT_LE(step.error(nullptr), kMaxEdgeRelativeL2);
}

TEST_F(BackgroundHostTest, AnEngineThatGoesEndsItsWorkerAndWhatThatStarted) {
  auto engine = std::make_unique<Engine>(options);
  engine->prepare(kDecode);
  ASSERT_TRUE(eventually([&] { return !children_named("attune-tune-worker").empty(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));  // into its compiles
  engine.reset();
  EXPECT_TRUE(has_no_child());
  EXPECT_TRUE(tmpdir.is_empty());
}

}  // namespace
}  // namespace attune
