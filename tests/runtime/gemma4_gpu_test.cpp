// The attention of Gemma 4 models on a GPU: the bodies of gemma4_host_test.cpp, larger.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/runtime/gemma4_golden.h"
#include "tests/runtime/gemma4_graphs.h"
#include "tests/runtime/gemma4_invariance.h"
#include "tests/runtime/gemma4_places.h"
#include "tests/runtime/gemma4_schedule.h"
#include "tests/runtime/gemma4_streams.h"
#include "tests/runtime/gemma4_swap.h"
#include "tests/support/require_gpu.h"

namespace attune {
namespace {

class Gemma4GpuTest : public GpuTest, public ::testing::WithParamInterface<KvLayout> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    options_.cache_path = gemma4_test_cache();
    options_.nvrtc_path = test_nvrtc_search().nvrtc_path;
    bench_ = std::make_unique<Gemma4Bench>(options_, open_cuda_device(0));
  }
  const Options& options() const { return options_; }
  Gemma4Bench& bench() { return *bench_; }

 private:
  Options options_;
  std::unique_ptr<Gemma4Bench> bench_;
};

TEST_P(Gemma4GpuTest, AgreesWithGoldenTensorsInAnySteps) {
  const GoldenLayers golden;
  const std::vector<int> layers =
      GetParam() == KvLayout::kContiguous ? std::vector<int>{0, 1} : std::vector<int>{1};
  expect_golden(bench(), golden,
                {.layout = GetParam(),
                 .max_prefill = GoldenLayers::kNumTokens,
                 .layers = layers,
                 .prefills = {GoldenLayers::kNumTokens},
                 .verifies = {}});
  expect_golden(bench(), golden,
                {.layout = GetParam(),
                 .max_prefill = 40,
                 .layers = layers,
                 .prefills = all_sizes(1, 40),
                 .verifies = all_sizes(2, 8)});
}

TEST_P(Gemma4GpuTest, RandomSchedulesEqualAttentionRecomputedFromScratch) {
  const bool paged = is_paged(GetParam());
  for (const std::uint32_t seed : {1u, 2u}) {
    expect_right_schedule(bench(),
                          {.global_layout = GetParam(),
                           .num_pages = paged ? 30 : 0,
                           .projections = seed == 1 ? Projections::kDense : Projections::kFused,
                           .seed = seed,
                           .num_steps = is_unified(GetParam()) ? 500 : 1500});
  }
}

TEST_P(Gemma4GpuTest, AReplayedStepIsRightAndEqualToADirectOne) {
  expect_right_replays(bench(), {.global_layout = GetParam(), .batch = 1, .num_replays = 1000});
}

TEST_P(Gemma4GpuTest, AReplayedBatchIsRightWhileItsSequencesChange) {
  expect_right_replays(
      bench(), {.global_layout = GetParam(), .batch = 3, .num_replays = 1000, .compare_every = 3});
}

TEST_P(Gemma4GpuTest, InvariantStepsGiveATokenTheSameBitsInEveryWindow) {
  expect_invariant_steps(bench(), {.global_layout = GetParam(),
                                   .starts = {1, 22, 60, 120, 500, 1000, 2500},
                                   .max_tokens = 3000});
}

TEST_P(Gemma4GpuTest, AReplayedBatchServesWhoeverHasTheReusedPlace) {
  expect_right_replays_in_reused_places(bench(), GetParam());
}

TEST_P(Gemma4GpuTest, StepsOfASessionAndOfABatchOnTwoStreamsAreRight) {
  expect_right_steps_on_two_streams(
      bench(),
      {.global_layout = GetParam(), .on_streams = OnStreams::kSessionAndBatch, .num_rounds = 100});
}

TEST_P(Gemma4GpuTest, StepsOfTwoBatchesOnTwoStreamsAreRight) {
  expect_right_steps_on_two_streams(
      bench(),
      {.global_layout = GetParam(), .on_streams = OnStreams::kTwoBatches, .num_rounds = 100});
}

TEST_P(Gemma4GpuTest, StepsOfTwoSessionsOnStreamsThatWaitForEachOtherAreRight) {
  expect_right_steps_on_two_streams(bench(), {.global_layout = GetParam(),
                                              .on_streams = OnStreams::kTwoSessionsInTurns,
                                              .num_rounds = 30});
}

TEST_P(Gemma4GpuTest, GraphsKeepReplacedKernelsAfterASwapAndNewStepsHaveTheWinners) {
  expect_right_steps_after_a_swap(options(), open_cuda_device(0), compiler(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Layouts, Gemma4GpuTest, ::testing::ValuesIn(kGlobalLayouts),
                         name_of_layout);

}  // namespace
}  // namespace attune
