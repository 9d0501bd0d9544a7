// OnMiss::kBackground on a fake device, with workers that are scripts: the nearest winner is served
// until the exact one, which a test stores by itself, is swapped in.
#include <gtest/gtest.h>

#include "runtime/attune_c.h"
#include "runtime/c_handles.h"
#include "tests/runtime/background_fixture.h"
#include "tests/runtime/serving_fixture.h"
#include "tuner/tune_worker.h"

namespace attune {
namespace {

constexpr const char* kBetter = "splitkv/m16n64s2w8/x16";

class BackgroundTest : public ServingTest {
 protected:
  BackgroundTest() {
    store(kVerify8);
    options.on_miss = OnMiss::kBackground;
  }
  // A worker that ends well once `worker.go()` was called; the winner that it stands for is stored.
  void use(const ScriptedWorker& worker) { options.tune_worker_path = worker.path(); }
  static AttentionArgs args() {
    AttentionArgs args = plausible_args();
    args.capacity = 4096;
    return args;
  }
  void finish(Engine& engine, const ScriptedWorker& worker) {
    store(kVerify5, kBetter);
    worker.go();
    EXPECT_TRUE(eventually([&] { return engine.poll().ready == 1; }));
  }
  OwnTmpdir tmpdir;
};

TEST_F(BackgroundTest, ServesTheNearestAtOnceAndTheWinnerAfterTheSwap) {
  const ScriptedWorker worker("exit 0");
  use(worker);
  auto serving = engine();
  const Attention attention = serving->prepare(kVerify5);
  const Attention copy = attention;
  EXPECT_EQ(attention.served(), Served::kNearest);
  EXPECT_EQ(serving->swap(nullptr).size(), 0u);
  const std::size_t workspace_bytes = attention.workspace_bytes();

  finish(*serving, worker);
  EXPECT_EQ(attention.candidate_text(), kCandidate);  // never by itself
  const std::vector<Swap> swaps = serving->swap(nullptr);
  ASSERT_EQ(swaps.size(), 1u);
  EXPECT_EQ(swaps[0].problem, kVerify5);
  EXPECT_EQ(swaps[0].from, kCandidate);
  EXPECT_EQ(swaps[0].to, kBetter);
  for (const Attention& one : {attention, copy, serving->prepare(kVerify5)}) {
    EXPECT_EQ(one.served(), Served::kExact);
    EXPECT_EQ(one.candidate_text(), kBetter);
    EXPECT_EQ(one.workspace_bytes(), workspace_bytes);
  }
  EXPECT_TRUE(contains(attention.explain(), "the winner of this problem"));
  EXPECT_EQ(serving->swap(nullptr).size(), 0u);
  const Counters counters = serving->counters();
  EXPECT_EQ(counters.nearest, 1u);
  EXPECT_EQ(counters.background_tunes, 1u);
  EXPECT_EQ(counters.background_failures, 0u);
  EXPECT_EQ(counters.swaps, 1u);
  EXPECT_TRUE(tmpdir.is_empty());
}

TEST_F(BackgroundTest, TheWorkspaceIsEnoughForEveryCandidateThatMayWin) {
  const ScriptedWorker worker("exit 0");
  use(worker);
  auto serving = engine();
  const std::size_t told = serving->prepare(kVerify5).workspace_bytes();
  const Problem problem = Problem::parse(kVerify5);
  EXPECT_GT(told, plan_launch(problem, Candidate::parse(kCandidate)).workspace_bytes());
  EXPECT_GE(told, plan_launch(problem, Candidate::parse(kBetter)).workspace_bytes());
  EXPECT_EQ(serving->prepare(kVerify8).workspace_bytes(),
            plan_launch(Problem::parse(kVerify8), Candidate::parse(kCandidate)).workspace_bytes());
}

TEST_F(BackgroundTest, AWinnerThatNeedsMoreWorkspaceThanPromisedIsNotSwappedIn) {
  const ScriptedWorker worker("exit 0");
  use(worker);
  auto serving = engine();
  const Attention attention = serving->prepare(kVerify5);
  store(kVerify5, "splitkv/m16n64s2w8/x4000");
  worker.go();
  EXPECT_TRUE(eventually([&] { return serving->poll().ready == 1; }));
  warnings.clear();
  EXPECT_EQ(serving->swap(nullptr).size(), 0u);
  EXPECT_EQ(attention.candidate_text(), kCandidate);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(contains(warnings[0], "more workspace"));
  EXPECT_EQ(serving->counters().background_failures, 1u);
}

TEST_F(BackgroundTest, TheWorkerIsToldWhatTheEngineKnows) {
  const ScriptedWorker worker("exit 0");
  use(worker);
  options.tune_budget_s = 7.5;
  options.disabled_families = {"tiled"};
  if (find_family("tiled") == nullptr) options.disabled_families.clear();
  auto serving = engine();
  serving->prepare(kVerify5);
  EXPECT_TRUE(eventually([&] { return worker.calls().size() == 1; }));
  const std::string call = worker.calls().at(0);
  EXPECT_TRUE(contains(call, std::string("--problem ") + kVerify5));
  EXPECT_TRUE(contains(call, "--cache " + options.cache_path));
  EXPECT_TRUE(contains(call, "--device 0 --gpu " + fake_device_info().identity()));
  EXPECT_TRUE(contains(call, "--nvrtc " + options.nvrtc_path));
  EXPECT_TRUE(contains(call, "--budget-ms 7500"));
}

TEST_F(BackgroundTest, TheWorkerIsToldOfBasesAndTheSizeCap) {
  const ScriptedWorker worker("exit 0");
  use(worker);
  const std::string base = options.cache_path + ".base";
  TuneStore::open(base)->put_winner(fake_device_info(),
                                    made_up_winner(kDecode, kCandidate, "13.0"));
  options.cache_bases = {base, "/nowhere.db"};
  options.cache_max_bytes = 12345;
  const auto call_of = [&](Engine& serving) {
    const std::size_t before = worker.calls().size();
    serving.prepare(kVerify5);
    EXPECT_TRUE(eventually([&] { return worker.calls().size() == before + 1; }));
    return worker.calls().back();
  };
  EXPECT_TRUE(contains(call_of(*engine()), "--cache-max-bytes 12345"));
  EXPECT_TRUE(contains(call_of(*engine()), "--cache-base " + base));
  EXPECT_FALSE(contains(call_of(*engine()), "nowhere"));  // was left out with a warning
  // A cache that cannot be written is a base of the worker's own.
  std::filesystem::remove(options.cache_path);
  std::filesystem::create_directory(options.cache_path);
  options.cache_bases = {base};
  options.on_miss = OnMiss::kBackground;
  auto in_memory = engine();
  const std::size_t before = worker.calls().size();
  EXPECT_EQ(in_memory->prepare("decode/b1/q1/kv1-1024/h32x4/d512/contiguous/bf16").served(),
            Served::kNearest);
  EXPECT_TRUE(eventually([&] { return worker.calls().size() == before + 1; }));
  EXPECT_TRUE(contains(worker.calls().back(), "--cache-base " + base));
}

TEST_F(BackgroundTest, AWinnerOfAnAliasIsServedUntilThisGpusOwnIsTuned) {
  const ScriptedWorker worker("exit 0");
  use(worker);
  DeviceInfo sibling = fake_device_info();
  sibling.name = "Sibling GPU";
  TuneStore::open(options.cache_path)
      ->put_winner(sibling, made_up_winner(kDecode, kCandidate, "13.0"));
  options.gpu_alias = "Sibling GPU";
  auto serving = engine();
  const Attention attention = serving->prepare(kDecode);
  EXPECT_EQ(attention.served(), Served::kNearest);
  EXPECT_EQ(attention.candidate_text(), kCandidate);
  worker.go();
  EXPECT_TRUE(eventually([&] { return serving->poll().ready == 1; }));
  warnings.clear();
  EXPECT_EQ(serving->swap(nullptr).size(), 0u);  // the alias' winner is not what was tuned
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(contains(warnings[0], "found no winner"));
  auto again = engine();
  again->prepare(kDecode);
  store(kDecode, "splitkv/m16n64s1w8/x66");
  EXPECT_TRUE(eventually([&] { return again->poll().ready == 1; }));
  ASSERT_EQ(again->swap(nullptr).size(), 1u);
}

// Memory is short once, or the log throws once.
TEST_F(BackgroundTest, WhatAnExceptionStopsIsSwappedByTheNextCall) {
  const ScriptedWorker worker("exit 0");
  use(worker);
  constexpr const char* kVerify6 = "verify/b2/q6/kv1-4096/h8x2/d256/w1024/ring/bf16";
  for (const int num_good : {0, 1}) {
    options.cache_path += ".next";
    store(kVerify8);
    auto fake = device();
    FakeDevice& gpu = *fake;
    Engine serving(options, std::move(fake));
    const Attention five = serving.prepare(kVerify5), six = serving.prepare(kVerify6);
    store(kVerify5, kBetter);
    store(kVerify6, kBetter);
    worker.go();
    EXPECT_TRUE(eventually([&] { return serving.poll().ready == 2; }));
    int num_loads = 0;
    gpu.on_load = [&](const Binary&) {
      if (num_loads++ == num_good) throw std::bad_alloc();
    };
    if (num_good == 0) {
      EXPECT_THROW(serving.swap(nullptr), std::bad_alloc);
    } else {
      EXPECT_EQ(serving.swap(nullptr).size(), 1u);
    }
    EXPECT_EQ(serving.poll().ready, static_cast<std::size_t>(2 - num_good));
    EXPECT_EQ(serving.swap(nullptr).size(), static_cast<std::size_t>(2 - num_good));
    EXPECT_EQ(five.candidate_text(), kBetter);
    EXPECT_EQ(six.candidate_text(), kBetter);
    EXPECT_EQ(serving.counters().swaps, 2u);
    EXPECT_EQ(serving.counters().background_failures, 0u);
  }
}

TEST_F(BackgroundTest, AnExactWinnerStartsNoWorker) {
  const ScriptedWorker worker("exit 0");
  use(worker);
  auto serving = engine();
  EXPECT_EQ(serving->prepare(kVerify8).served(), Served::kExact);
  EXPECT_TRUE(is_idle(serving->poll()));
}

TEST_F(BackgroundTest, OneWorkerAtATimeTheOthersWait) {
  const ScriptedWorker worker("exit 0");
  use(worker);
  auto serving = engine();
  serving->prepare(kVerify5);
  serving->prepare("verify/b2/q6/kv1-4096/h8x2/d256/w1024/ring/bf16");
  serving->prepare(kVerify5);
  EXPECT_TRUE(eventually([&] { return serving->poll().running == 1; }));
  EXPECT_EQ(serving->poll().waiting, 1u);
  store(kVerify5, kBetter);
  worker.go();
  EXPECT_TRUE(eventually([&] { return serving->poll().ready == 2; }));
  EXPECT_EQ(worker.calls().size(), 2u);
}

TEST_F(BackgroundTest, RefusesToSwapDuringACapture) {
  const ScriptedWorker worker("exit 0");
  use(worker);
  auto fake = device();
  FakeDevice& gpu = *fake;
  Engine serving(options, std::move(fake));
  const Attention attention = serving.prepare(kVerify5);
  finish(serving, worker);
  const Stream stream = gpu.create_stream();
  const Graph graph = gpu.capture(stream.get(), [&] {
    attention.launch(args(), stream.get());
    EXPECT_TRUE(contains(message_of<InvalidArgument>([&] { serving.swap(stream.get()); }),
                         "while the stream captures"));
  });
  EXPECT_EQ(serving.swap(stream.get()).size(), 1u);
}

TEST_F(BackgroundTest, ACapturedGraphKeepsTheReplacedKernelUntilItIsReleased) {
  const ScriptedWorker worker("exit 0");
  use(worker);
  auto fake = device();
  FakeDevice& gpu = *fake;
  std::vector<std::string> symbols;
  gpu.on_launch = [&](const Kernel& kernel, const KernelLaunch&, const void*) {
    symbols.push_back(FakeDevice::symbol_of(kernel));
  };
  Engine serving(options, std::move(fake));
  const Attention attention = serving.prepare(kVerify5);
  const Stream stream = gpu.create_stream();
  {
    const Graph graph = gpu.capture(stream.get(), [&] { attention.launch(args(), stream.get()); });
    finish(serving, worker);
    serving.swap(stream.get());
    EXPECT_EQ(gpu.live_modules(), 2);
    gpu.launch(graph, stream.get());
    attention.launch(args(), stream.get());
  }
  ASSERT_EQ(symbols.size(), 4u);  // split and combine
  EXPECT_EQ(symbols[0], "splitkv_d256_ring_bf16_shared_m16n64s1w8");
  EXPECT_EQ(symbols[2], "splitkv_d256_ring_bf16_shared_m16n64s2w8");
  EXPECT_EQ(serving.release_replaced(), 1u);
  EXPECT_EQ(gpu.live_modules(), 1);
  EXPECT_EQ(serving.release_replaced(), 0u);
  EXPECT_NO_THROW(attention.launch(args(), stream.get()));
}

TEST_F(BackgroundTest, AHeldKernelStaysLoadedUntilTheHoldIsGone) {
  const ScriptedWorker worker("exit 0");
  use(worker);
  auto fake = device();
  FakeDevice& gpu = *fake;
  Engine serving(options, std::move(fake));
  const Attention attention = serving.prepare(kVerify5);
  EXPECT_EQ(serving.generation(), 0u);
  KernelHold before = serving.hold();
  EXPECT_EQ(before.generation, 0u);
  finish(serving, worker);
  serving.swap(nullptr);
  EXPECT_EQ(serving.generation(), 1u);
  serving.swap(nullptr);  // nothing was ready
  EXPECT_EQ(serving.generation(), 1u);
  const KernelHold after = serving.hold();
  EXPECT_EQ(after.generation, 1u);
  EXPECT_EQ(serving.release_replaced(), 0u);
  EXPECT_EQ(gpu.live_modules(), 2);
  before = {};
  EXPECT_EQ(gpu.live_modules(), 2);  // until it is asked for
  EXPECT_EQ(serving.release_replaced(), 1u);
  EXPECT_EQ(gpu.live_modules(), 1);
  EXPECT_EQ(serving.release_replaced(), 0u);
}

TEST_F(BackgroundTest, AModuleThatAnotherProblemUsesIsNotReleased) {
  const ScriptedWorker worker("exit 0");
  use(worker);
  auto fake = device();
  FakeDevice& gpu = *fake;
  Engine serving(options, std::move(fake));
  serving.prepare(kVerify8);  // the same binary as the nearest of kVerify5
  serving.prepare(kVerify5);
  finish(serving, worker);
  serving.swap(nullptr);
  serving.release_replaced();
  EXPECT_EQ(gpu.live_modules(), 2);
}

TEST_F(BackgroundTest, AStrictSealedEngineStillSwaps) {
  const ScriptedWorker worker("exit 0");
  use(worker);
  options.strict = true;
  auto serving = engine();
  const Attention attention = serving->prepare(kVerify5);
  serving->seal();
  finish(*serving, worker);
  const std::string before = serving->choices_digest();
  EXPECT_EQ(serving->swap(nullptr).size(), 1u);
  EXPECT_EQ(attention.served(), Served::kExact);
  EXPECT_NE(serving->choices_digest(), before);
  EXPECT_EQ(serving->counters().late_prepares, 0u);
  EXPECT_THROW(serving->prepare(kDecode), NotPrepared);
}

TEST_F(BackgroundTest, AWorkerThatDiesIsOneWarningAndNotTriedAgain) {
  const ScriptedWorker worker("kill -9 $$");
  use(worker);
  auto serving = engine();
  const Attention attention = serving->prepare(kVerify5);
  warnings.clear();
  worker.go();
  EXPECT_TRUE(eventually([&] { return is_idle(serving->poll()); }));
  serving->poll();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(contains(warnings[0], "signal 9"));
  EXPECT_TRUE(contains(warnings[0], std::string("attune tune --problem '") + kVerify5 + "'"));
  EXPECT_EQ(serving->counters().background_failures, 1u);
  serving->prepare(kVerify5);
  EXPECT_TRUE(is_idle(serving->poll()));
  EXPECT_EQ(worker.calls().size(), 1u);
  EXPECT_EQ(attention.served(), Served::kNearest);
  EXPECT_TRUE(tmpdir.is_empty());
}

TEST_F(BackgroundTest, AWorkerThatSaysItIsDoneWithoutAWinnerIsAFailure) {
  const ScriptedWorker worker("exit 0");
  use(worker);
  auto serving = engine();
  const Attention attention = serving->prepare(kVerify5);
  worker.go();
  EXPECT_TRUE(eventually([&] { return serving->poll().ready == 1; }));
  warnings.clear();
  EXPECT_EQ(serving->swap(nullptr).size(), 0u);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(attention.served(), Served::kNearest);
}

TEST_F(BackgroundTest, AWorkerThatHangsIsEndedAtItsDeadline) {
  const ScriptedWorker worker("");  // nobody says go
  use(worker);
  options.tune_budget_s = 0.05;
  auto serving = engine();
  serving->prepare(kVerify5);
  EXPECT_TRUE(eventually([&] { return is_idle(serving->poll()); }));
  EXPECT_EQ(serving->poll().ready, 0u);
  ASSERT_FALSE(warnings.empty());
  EXPECT_TRUE(contains(warnings.back(), "deadline_s="));
  EXPECT_TRUE(has_no_child());
}

TEST_F(BackgroundTest, AMissingWorkerProgramLeavesTheEngineServing) {
  options.tune_worker_path = (tmpdir.path() / "nowhere").string();
  auto serving = engine();
  EXPECT_EQ(serving->prepare(kVerify5).served(), Served::kNearest);
  EXPECT_TRUE(eventually([&] { return is_idle(serving->poll()); }));
  serving->poll();
  ASSERT_FALSE(warnings.empty());
  EXPECT_TRUE(contains(warnings.back(), "nowhere"));
}

TEST_F(BackgroundTest, AnEngineEndsItsWorkerAndWhatItLeft) {
  const ScriptedWorker worker("");
  use(worker);
  auto serving = engine();
  const Attention attention = serving->prepare(kVerify5);
  EXPECT_TRUE(eventually([&] { return worker.calls().size() == 1; }));
  EXPECT_FALSE(tmpdir.is_empty());
  serving.reset();
  EXPECT_TRUE(has_no_child());
  EXPECT_TRUE(tmpdir.is_empty());
  EXPECT_NO_THROW(attention.launch(args(), nullptr));
}

TEST_F(BackgroundTest, TheCInterfaceSwapsAndCounts) {
  const ScriptedWorker worker("exit 0");
  use(worker);
  attune_engine handle{Engine(options, device())};
  attune_attention* attention = nullptr;
  ASSERT_EQ(attune_engine_prepare(&handle, kVerify5, &attention), ATTUNE_OK);
  finish(handle.engine, worker);
  std::size_t pending = 9, ready = 9, swapped = 9, released = 9;
  EXPECT_EQ(attune_engine_poll(&handle, &pending, &ready), ATTUNE_OK);
  EXPECT_EQ(pending, 0u);
  EXPECT_EQ(ready, 1u);
  std::uint64_t generation = 9;
  EXPECT_EQ(attune_engine_generation(&handle, &generation), ATTUNE_OK);
  EXPECT_EQ(generation, 0u);
  EXPECT_EQ(attune_engine_swap(&handle, nullptr, &swapped), ATTUNE_OK);
  EXPECT_EQ(swapped, 1u);
  EXPECT_EQ(attune_engine_generation(&handle, &generation), ATTUNE_OK);
  EXPECT_EQ(generation, 1u);
  EXPECT_EQ(attune_engine_generation(&handle, nullptr), ATTUNE_INVALID_ARGUMENT);
  attune_served served = ATTUNE_SERVED_DEFAULT;
  EXPECT_EQ(attune_attention_served(attention, &served), ATTUNE_OK);
  EXPECT_EQ(served, ATTUNE_SERVED_EXACT);
  EXPECT_EQ(attune_engine_release_replaced(&handle, &released), ATTUNE_OK);
  EXPECT_EQ(released, 1u);
  attune_counters counters{};
  EXPECT_EQ(attune_engine_counters(&handle, &counters), ATTUNE_INVALID_ARGUMENT);
  counters.struct_size = sizeof(counters);
  EXPECT_EQ(attune_engine_counters(&handle, &counters), ATTUNE_OK);
  EXPECT_EQ(counters.struct_size, sizeof(counters));
  EXPECT_EQ(counters.nearest, 1u);
  EXPECT_EQ(counters.background_tunes, 1u);
  EXPECT_EQ(counters.swaps, 1u);
  EXPECT_EQ(attune_engine_swap(nullptr, nullptr, nullptr), ATTUNE_INVALID_ARGUMENT);
  attune_attention_destroy(attention);
}

TEST(TuneWorkerArguments, AreReadAsTheyWereWritten) {
  TuneWorkerJob job;
  job.problem = kVerify5;
  job.cache_path = "/a b/tune.db";
  job.device = "host+checks";
  job.gpu = "NVIDIA H200|sm_90a|9.0|132|150323855360|0";
  job.cache_bases = {"/opt/a:b.db", "/opt/c.db"};
  job.cache_max_bytes = std::size_t{5} << 30;
  job.cxx_path = "/opt/g++";
  job.measure_worker_path = "/opt/measure";
  job.scratch = "/tmp/attune-x";
  job.budget_s = 0.25;
  job.refresh = true;
  job.disabled_families = {"splitkv", "tiled"};
  EXPECT_EQ(parse_tune_worker_arguments(arguments_of(job)), job);
}

TEST(TuneWorkerArguments, AreRefusedWithTheForm) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"--problem"},
      {"--nothing", "x"},
      {"--problem", "p", "--cache", "c"},
      {"--problem", "p", "--cache", "c", "--device", "0", "--budget-ms", "-1"}};
  for (const auto& arguments : wrong) {
    EXPECT_TRUE(
        contains(message_of<InvalidArgument>([&] { parse_tune_worker_arguments(arguments); }),
                 "--problem P --cache FILE"));
  }
}

TEST(TuneWorker, SaysInItsExitWhatWasWrong) {
  TuneWorkerJob job;
  job.problem = "no problem";
  job.cache_path = "/nowhere/tune.db";
  job.device = "0";
  const auto never = [] { return false; };
  EXPECT_EQ(run_tune_worker(job, never).exit, TuneWorkerExit::kUsage);
  job.problem = kVerify5;
  job.device = "host";
  job.gpu = "another";
  const TuneWorkerEnd end = run_tune_worker(job, never);
  EXPECT_EQ(end.exit, TuneWorkerExit::kNoDevice);
  EXPECT_TRUE(contains(end.reason, "engine=another"));
}

}  // namespace
}  // namespace attune
