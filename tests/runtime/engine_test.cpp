#include <thread>

#include <gtest/gtest.h>

#include "runtime/dispatch.h"
#include "tests/runtime/serving_fixture.h"
#include "tuner/tuner.h"

namespace attune {
namespace {

class EngineTest : public ServingTest {};

TEST_F(EngineTest, ServesTheExactWinnerWithoutAWarning) {
  store(kDecode);
  const Attention attention = engine()->prepare(kDecode);
  EXPECT_EQ(attention.served(), Served::kExact);
  EXPECT_EQ(attention.problem_text(), kDecode);
  EXPECT_EQ(attention.candidate_text(), kCandidate);
  EXPECT_EQ(attention.workspace_bytes(),
            plan_launch(Problem::parse(kDecode), Candidate::parse(kCandidate)).workspace_bytes());
  EXPECT_EQ(warnings, std::vector<std::string>{});
}

TEST_F(EngineTest, LaunchesSplitAndCombineWithTheCallersPointers) {
  store(kDecode);
  auto fake = device();
  std::vector<std::string> symbols;
  std::vector<Dim3> grids;
  AttentionParams last{};
  fake->on_launch = [&](const Kernel& kernel, const KernelLaunch& shape, const void* params) {
    symbols.push_back(FakeDevice::symbol_of(kernel));
    grids.push_back(shape.grid);
    last = *static_cast<const AttentionParams*>(params);
  };
  Engine serving(options, std::move(fake));
  serving.prepare(kDecode).launch(plausible_args(), nullptr);
  EXPECT_EQ(symbols, (std::vector<std::string>{"splitkv_d512_contiguous_bf16_m16n64s1w8",
                                               "combine_d512_bf16"}));
  EXPECT_EQ(grids.at(0), (Dim3{33, 4, 1}));
  EXPECT_EQ(reinterpret_cast<std::uint64_t>(last.k), plausible_args().k);
  EXPECT_EQ(last.split_cap, 33);
}

TEST_F(EngineTest, LaunchesBeforeTheEndOfTheKernelInFrontOnlyWhenAskedTo) {
  store(kDecode);
  auto fake = device();
  std::vector<bool> programmatic;
  std::vector<int> overlap;
  fake->on_launch = [&](const Kernel&, const KernelLaunch& shape, const void* params) {
    programmatic.push_back(shape.programmatic);
    overlap.push_back(static_cast<const AttentionParams*>(params)->overlap);
  };
  Engine serving(options, std::move(fake));
  const Attention attention = serving.prepare(kDecode);
  AttentionArgs args = plausible_args();
  attention.launch(args, nullptr);
  args.overlap = true;
  attention.launch(args, nullptr);
  // The combine always may: it reads nothing before its wait.
  EXPECT_EQ(programmatic, (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(overlap, (std::vector<int>{0, 0, 1, 1}));
}

TEST_F(EngineTest, RefusesBadArgumentsBeforeAnyLaunch) {
  store(kDecode);
  auto serving = engine();
  const Attention attention = serving->prepare(kDecode);
  calls.clear();
  AttentionArgs args = plausible_args();
  args.capacity = 0;
  EXPECT_THROW(attention.launch(args, nullptr), InvalidArgument);
  EXPECT_EQ(calls, std::vector<std::string>{});
}

TEST_F(EngineTest, ServesTheNearestWinnerWithALaunchOfTheAskedProblem) {
  store(kVerify8);
  auto serving = engine();
  const Attention attention = serving->prepare(kVerify5);
  EXPECT_EQ(attention.served(), Served::kNearest);
  EXPECT_EQ(attention.workspace_bytes(),
            plan_launch(Problem::parse(kVerify5), Candidate::parse(kCandidate)).workspace_bytes());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(contains(warnings[0], kVerify8));
  EXPECT_TRUE(contains(warnings[0], std::string("attune tune --problem '") + kVerify5 + "'"));
  EXPECT_EQ(serving->counters().nearest, 1u);
}

TEST_F(EngineTest, ServesAWinnerOfAWiderRangeInSilence) {
  store(kDecode);
  const Attention attention =
      engine()->prepare("decode/b1/q1/kv1024-2048/h32x4/d512/contiguous/bf16");
  EXPECT_EQ(attention.served(), Served::kNearest);
  EXPECT_EQ(warnings, std::vector<std::string>{});
}

TEST_F(EngineTest, PreparingAgainIsALookUp) {
  store(kDecode);
  auto serving = engine();
  serving->prepare(kDecode);
  calls.clear();
  serving->prepare(kDecode);
  EXPECT_EQ(calls, std::vector<std::string>{});
  EXPECT_EQ(serving->counters().exact, 1u);
}

TEST_F(EngineTest, ProblemsThatNeedTheSameBinaryShareAModule) {
  store(kDecode);
  auto serving = engine();
  serving->prepare(kDecode);
  calls.clear();
  serving->prepare("decode/b1/q1/kv64-128/h32x4/d512/contiguous/bf16");
  EXPECT_EQ(calls, std::vector<std::string>{});
}

TEST_F(EngineTest, ErrorPolicyThrowsWithTheCommandThatTunes) {
  options.on_miss = OnMiss::kError;
  auto serving = engine();
  EXPECT_EQ(message_of<NotPrepared>([&] { serving->prepare(kDecode); }),
            std::string("no winner for this problem: problem=") + kDecode +
                " gpu=NVIDIA H200 cache=" + options.cache_path +
                "; tune it with attune tune --problem '" + kDecode + "'");
}

TEST_F(EngineTest, WithoutNvrtcAMissSaysWhatToInstall) {
  auto serving = engine();
  const std::string message = message_of<DeviceUnavailable>([&] { serving->prepare(kDecode); });
  EXPECT_TRUE(contains(message, options.nvrtc_path));
  EXPECT_TRUE(contains(message, kDecode));
}

TEST_F(EngineTest, WithoutNvrtcAnUnusableWinnerSaysWhyItIsUnusable) {
  store(kDecode, "splitkv/m16n64s4w8/x33");
  const std::string message = message_of<DeviceUnavailable>([&] { engine()->prepare(kDecode); });
  EXPECT_TRUE(contains(message, "limit=232448"));
  EXPECT_TRUE(contains(message, options.nvrtc_path));
}

TEST_F(EngineTest, WithoutNvrtcTheNewestWinnerOfAnyVersionIsServed) {
  Winner old_winner = made_up_winner(kDecode, "splitkv/m16n32s1w8/x33", "12.8");
  old_winner.created_at = "2024-01-01T00:00:00Z";
  store(made_up_winner(kDecode, kCandidate, "13.0"));
  store(old_winner);
  EXPECT_EQ(engine()->prepare(kDecode).candidate_text(), kCandidate);
}

TEST_F(EngineTest, AWinnerOfAnotherTemplateIsAMiss) {
  Winner winner = made_up_winner(kDecode, kCandidate, "13.0");
  winner.toolchain.template_digest = digest_of("an older template");
  store(winner);
  options.on_miss = OnMiss::kError;
  EXPECT_THROW(engine()->prepare(kDecode), NotPrepared);
}

TEST_F(EngineTest, AWinnerThatCannotBeLoadedIsAMissThatSaysWhy) {
  store(kDecode);
  options.on_miss = OnMiss::kError;
  auto fake = device();
  fake->on_load = [](const Binary&) {
    throw CudaError("cannot load a module", 200, "CUDA_ERROR_INVALID_IMAGE");
  };
  Engine serving(options, std::move(fake));
  const std::string message = message_of<NotPrepared>([&] { serving.prepare(kDecode); });
  EXPECT_TRUE(contains(message, "CUDA_ERROR_INVALID_IMAGE"));
  EXPECT_TRUE(contains(message, kCandidate));
  EXPECT_TRUE(contains(message, "--refresh"));
}

TEST_F(EngineTest, AWinnerBeyondTheDevicesLimitsIsAMissThatSaysWhy) {
  store(kDecode, "splitkv/m16n64s4w8/x33");  // 4 stages of 64 x 512 are over 227 KB
  options.on_miss = OnMiss::kError;
  EXPECT_TRUE(
      contains(message_of<NotPrepared>([&] { engine()->prepare(kDecode); }), "limit=232448"));
}

TEST_F(EngineTest, AWinnerTimedWithAnotherDriverIsServedWithAWarning) {
  Winner winner = made_up_winner(kDecode, kCandidate, "13.0");
  winner.driver_version = "12.8";
  store(winner);
  const Attention attention = engine()->prepare(kDecode);
  EXPECT_EQ(attention.served(), Served::kExact);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(contains(warnings[0], "driver=12.8"));
  EXPECT_TRUE(contains(attention.explain(), "timed with driver 12.8, this is 13.0"));
}

TEST_F(EngineTest, ExplainsThatAWinnerWasChosenInAHurry) {
  Winner winner = made_up_winner(kDecode, kCandidate, "13.0");
  winner.method = kPartialTimingMethod;
  store(winner);
  const std::string text = engine()->prepare(kDecode).explain();
  EXPECT_TRUE(contains(text, "the time ran out"));
}

TEST_F(EngineTest, ExplainsWhatIsServedAndWhatItBeat) {
  store(kDecode);
  const std::string text = engine()->prepare(kDecode).explain();
  for (const char* part :
       {kDecode, kCandidate, "the winner of this problem", "grid=33x4x1", "2025-01-02T03:04:05Z",
        "kv_len=1 5.25 us", "splitkv/m16n32s2w8/x66 by 3.1%", "splitkv/m16n32s1w4/x132 takes 42.0%",
        "relative_l2=1.90e-03"}) {
    EXPECT_TRUE(contains(text, part));
  }
}

TEST_F(EngineTest, AfterSealOnlyLaunchesReachTheDevice) {
  store(kDecode);
  auto serving = engine();
  const Attention attention = serving->prepare(kDecode);
  serving->seal();
  EXPECT_TRUE(serving->sealed());
  calls.clear();
  serving->prepare(kDecode).launch(plausible_args(), nullptr);
  attention.launch(plausible_args(), nullptr);
  EXPECT_EQ(calls, (std::vector<std::string>{"launch", "launch", "launch", "launch"}));
  EXPECT_EQ(serving->counters().late_prepares, 0u);
}

TEST_F(EngineTest, AStrictEngineRefusesLateWork) {
  store(kDecode);
  store(kVerify8);
  options.strict = true;
  auto serving = engine();
  serving->prepare(kDecode);
  serving->seal();
  calls.clear();
  EXPECT_NO_THROW(serving->prepare(kDecode));
  EXPECT_TRUE(contains(message_of<NotPrepared>([&] { serving->prepare(kVerify8); }), kVerify8));
  EXPECT_EQ(calls, std::vector<std::string>{});
  EXPECT_EQ(serving->counters().late_prepares, 1u);
}

TEST_F(EngineTest, ALenientEngineDoesLateWorkAndSaysSo) {
  store(kDecode);
  auto serving = engine();
  serving->seal();
  EXPECT_EQ(serving->prepare(kDecode).served(), Served::kExact);
  EXPECT_EQ(serving->counters().late_prepares, 1u);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(contains(warnings[0], "after seal()"));
}

TEST_F(EngineTest, RefusesAProblemTextWithItsReason) {
  auto serving = engine();
  EXPECT_TRUE(contains(message_of<InvalidArgument>([&] {
                         serving->prepare("decode/b1/q1/kv1-64/h32x4/d96/contiguous/bf16");
                       }),
                       "head_dim"));
  EXPECT_THROW(serving->prepare(""), InvalidArgument);
  EXPECT_THROW(serving->prepare("decode"), InvalidArgument);
}

TEST_F(EngineTest, RefusesOptionsThatMeanNothing) {
  options.tune_budget_s = 0;
  EXPECT_THROW(engine(), InvalidArgument);
  options.tune_budget_s = 60;
  options.device_ordinal = -1;
  EXPECT_THROW(engine(), InvalidArgument);
  EXPECT_THROW(Engine(Options{}, nullptr), InvalidArgument);
}

TEST_F(EngineTest, AnAttentionOutlivesItsEngine) {
  store(kDecode);
  auto serving = engine();
  const Attention attention = serving->prepare(kDecode);
  serving.reset();
  EXPECT_NO_THROW(attention.launch(plausible_args(), nullptr));
}

TEST_F(EngineTest, AnEmptyAttentionSaysWhereToGetOne) {
  EXPECT_TRUE(
      contains(message_of<InvalidArgument>([] { Attention().launch(plausible_args(), nullptr); }),
               "Engine::prepare"));
  EXPECT_THROW(Attention().workspace_bytes(), InvalidArgument);
}

TEST_F(EngineTest, RanksThatServeAlikeHaveTheSameDigest) {
  store(kDecode);
  store(kVerify8);
  auto first = engine();
  first->prepare(kDecode);
  first->prepare(kVerify8);
  auto second = engine();  // in another order
  second->prepare(kVerify8);
  EXPECT_NE(first->choices_digest(), second->choices_digest());
  second->prepare(kDecode);
  EXPECT_EQ(first->choices_digest(), second->choices_digest());
  EXPECT_EQ(first->choices_digest().size(), 32u);
}

TEST_F(EngineTest, AnotherWorkspaceIsAnotherDigest) {
  store(kDecode, "splitkv/m16n64s1w8/x33");
  auto first = engine();
  first->prepare(kDecode);
  store(kDecode, "splitkv/m16n64s1w8/x66");
  auto second = engine();
  second->prepare(kDecode);
  EXPECT_NE(first->choices_digest(), second->choices_digest());
}

TEST_F(EngineTest, ServesFromABaseBeneathAnEmptyCache) {
  store(kDecode);
  options.cache_bases = {options.cache_path};
  options.cache_path += ".user";
  EXPECT_EQ(engine()->prepare(kDecode).served(), Served::kExact);
  options.cache_path.clear();  // memory alone
  EXPECT_EQ(engine()->prepare(kDecode).served(), Served::kExact);
  EXPECT_EQ(warnings, std::vector<std::string>{});
}

TEST_F(EngineTest, ServesTheWinnersOfAnAliasWithAWarning) {
  DeviceInfo sibling = fake_device_info();
  sibling.name = "Sibling GPU";
  TuneStore::open(options.cache_path)
      ->put_winner(sibling, made_up_winner(kDecode, kCandidate, "13.0"));
  options.on_miss = OnMiss::kError;
  EXPECT_THROW(engine()->prepare(kDecode), NotPrepared);
  options.gpu_alias = "Sibling GPU";
  warnings.clear();
  const Attention attention = engine()->prepare(kDecode);
  EXPECT_EQ(attention.served(), Served::kNearest);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(contains(warnings[0], "provisional winner: problem=" + std::string(kDecode)));
  EXPECT_TRUE(contains(warnings[0], "attune tune --problem"));
  EXPECT_TRUE(contains(attention.explain(), "a winner of the GPU that the alias names"));
  EXPECT_TRUE(contains(attention.explain(), "provisional"));
}

// There is no compiler here: that it was asked for shows in the warning.
TEST_F(EngineTest, TunesNowWhereOnlyAnAliasHasAWinner) {
  DeviceInfo sibling = fake_device_info();
  sibling.name = "Sibling GPU";
  TuneStore::open(options.cache_path)
      ->put_winner(sibling, made_up_winner(kDecode, kCandidate, "13.0"));
  options.on_miss = OnMiss::kTune;
  options.gpu_alias = "Sibling GPU";
  EXPECT_EQ(engine()->prepare(kDecode).served(), Served::kNearest);
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_TRUE(contains(warnings[0], "cannot tune this problem: problem=" + std::string(kDecode)));
  EXPECT_TRUE(contains(warnings[1], "provisional winner"));
  store(kDecode);
  warnings.clear();
  EXPECT_EQ(engine()->prepare(kDecode).served(), Served::kExact);
  EXPECT_EQ(warnings, std::vector<std::string>{});
}

TEST_F(EngineTest, ARunnerUpWithLessRegretIsSaidToBe) {
  Winner winner = made_up_winner(kDecode, kCandidate, "13.0");
  winner.margin_runner_up = -0.02;
  store(winner);
  EXPECT_TRUE(contains(engine()->prepare(kDecode).explain(),
                       "runner-up  splitkv/m16n32s2w8/x66 has 2.0% less regret, but is not"));
}

TEST_F(EngineTest, ThreadsPrepareTheSameProblemOnce) {
  store(kDecode);
  auto serving = engine();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(serving->prepare(kDecode).served(), Served::kExact); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(serving->counters().exact, 1u);
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "load"), 1);
}

TEST(WhyNotServable, NamesTheLimitThatIsBroken) {
  const Problem problem = Problem::parse(kDecode);
  DeviceInfo device = fake_device_info();
  EXPECT_EQ(why_not_servable(problem, Candidate::parse(kCandidate), device), std::nullopt);
  EXPECT_TRUE(contains(*why_not_servable(problem, Candidate::parse("other/m16n64s1w8/x33"), device),
                       "family=other"));
  EXPECT_TRUE(
      contains(*why_not_servable(problem, Candidate::parse("splitkv/m16n64s4w8/x33"), device),
               "limit=232448"));
  EXPECT_TRUE(contains(
      *why_not_servable(problem, Candidate::parse("splitkv/m16n64s1w7/x33"), device), "7 warps"));
  device.max_threads_per_block = 128;
  EXPECT_TRUE(contains(*why_not_servable(problem, Candidate::parse(kCandidate), device),
                       "threads=256 limit=128"));
  device.compute_major = 7;
  EXPECT_TRUE(contains(*why_not_servable(problem, Candidate::parse(kCandidate), device),
                       "compute_capability=70 least=80"));
}

}  // namespace
}  // namespace attune
