// The attention of Gemma 4 models on the host device: the same bodies as on a GPU, smaller.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "jit/host_device.h"
#include "tests/runtime/gemma4_golden.h"
#include "tests/runtime/gemma4_graphs.h"
#include "tests/runtime/gemma4_invariance.h"
#include "tests/runtime/gemma4_places.h"
#include "tests/runtime/gemma4_schedule.h"
#include "tests/runtime/gemma4_streams.h"
#include "tests/runtime/gemma4_swap.h"
#include "tests/support/interleaving_device.h"
#include "tests/support/require_cxx.h"

namespace attune {
namespace {

// The thread sanitizer takes more than ten times as long.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

class Gemma4HostTest : public HostCompilerTest, public ::testing::WithParamInterface<KvLayout> {
 protected:
  void SetUp() override {
    HostCompilerTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    options_.device = "host";
    options_.cxx_path = test_host_search().cxx;
    options_.cache_path = gemma4_test_cache();
    bench_ = std::make_unique<Gemma4Bench>(options_, open_host_device());
  }
  const Options& options() const { return options_; }
  Gemma4Bench& bench() { return *bench_; }

 private:
  Options options_;
  std::unique_ptr<Gemma4Bench> bench_;
};

TEST_P(Gemma4HostTest, AgreesWithGoldenTensorsInAnySteps) {
  const GoldenLayers golden;
  // Every size takes half a minute: those around tiles of one layout here, all of all on a GPU.
  const bool every = GetParam() == KvLayout::kContiguous && !kIsSanitized;
  const std::vector<int> layers =
      GetParam() == KvLayout::kContiguous ? std::vector<int>{0, 1} : std::vector<int>{1};
  const std::vector<int> few = {7, 16, 33, 40};
  std::vector<int> many = all_sizes(1, 18);
  many.insert(many.end(), {24, 31, 32, 33, 39, 40});
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
                 .prefills = every ? many : few,
                 .verifies = every ? all_sizes(2, 8) : std::vector<int>{5}});
}

TEST_P(Gemma4HostTest, RandomSchedulesEqualAttentionRecomputedFromScratch) {
  const bool paged = is_paged(GetParam());
  for (const std::uint32_t seed : {1u, 2u}) {
    expect_right_schedule(bench(),
                          {.global_layout = GetParam(),
                           .num_pages = paged ? 30 : 0,
                           .projections = seed == 1 ? Projections::kDense : Projections::kFused,
                           .seed = seed,
                           .num_steps = kIsSanitized             ? 50
                                        : is_unified(GetParam()) ? 100
                                                                 : 250});
  }
}

TEST_P(Gemma4HostTest, AReplayedStepIsRightAndEqualToADirectOne) {
  expect_right_replays(bench(), {.global_layout = GetParam(), .batch = 1, .num_replays = 60});
}

TEST_P(Gemma4HostTest, AReplayedBatchIsRightWhileItsSequencesChange) {
  expect_right_replays(bench(), {.global_layout = GetParam(), .batch = 3, .num_replays = 40});
}

TEST_P(Gemma4HostTest, InvariantStepsGiveATokenTheSameBitsInEveryWindow) {
  // Behind 120 tokens the ring's rows begin anew within the span.
  const std::vector<int> starts =
      kIsSanitized ? std::vector<int>{120} : std::vector<int>{1, 22, 120};
  expect_invariant_steps(bench(), {.global_layout = GetParam(), .starts = starts});
}

TEST_P(Gemma4HostTest, AReplayedBatchServesWhoeverHasTheReusedPlace) {
  expect_right_replays_in_reused_places(bench(), GetParam());
}

TEST_P(Gemma4HostTest, StepsOnTwoStreamsAreRightInAnyOrderOfTheirLaunches) {
  const int num_rounds = kIsSanitized || is_unified(GetParam()) ? 4 : 8;
  for (const OnStreams on_streams : kOnStreams) {
    auto device = std::make_unique<InterleavingDevice>(open_host_device(), 3);
    const InterleavingDevice& streams = *device;
    Gemma4Bench interleaved(options(), std::move(device));
    expect_right_steps_on_two_streams(
        interleaved,
        {.global_layout = GetParam(), .on_streams = on_streams, .num_rounds = num_rounds});
    EXPECT_GT(streams.num_turns(), 100);
  }
}

// Its kernels are compiled anew: of two layouts here, of all on a GPU.
class Gemma4HostSwapTest : public Gemma4HostTest {};

TEST_P(Gemma4HostSwapTest, GraphsKeepReplacedKernelsAfterASwapAndNewStepsHaveTheWinners) {
  expect_right_steps_after_a_swap(options(), open_host_device(), compiler(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Layouts, Gemma4HostTest, ::testing::ValuesIn(kGlobalLayouts),
                         name_of_layout);
INSTANTIATE_TEST_SUITE_P(Layouts, Gemma4HostSwapTest,
                         ::testing::Values(KvLayout::kContiguous, KvLayout::kUnifiedPaged),
                         name_of_layout);

}  // namespace
}  // namespace attune
