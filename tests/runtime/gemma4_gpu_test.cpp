// The attention of Gemma 4 models on a GPU: the bodies of gemma4_host_test.cpp, larger.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "templates/problem.h"
#include "tests/runtime/gemma4_golden.h"
#include "tests/runtime/gemma4_graphs.h"
#include "tests/runtime/gemma4_schedule.h"
#include "tests/support/require_gpu.h"
#include "tests/support/temporary_folder.h"

namespace attune {
namespace {

constexpr KvLayout kGlobalLayouts[] = {KvLayout::kContiguous, KvLayout::kPaged, KvLayout::kUnified,
                                       KvLayout::kUnifiedPaged};

std::string name_of_layout(const testing::TestParamInfo<KvLayout>& info) {
  std::string name(name_of(info.param));
  std::erase(name, '-');
  return name;
}

class Gemma4GpuTest : public GpuTest, public testing::WithParamInterface<KvLayout> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    static const TemporaryFolder folder;  // what one test compiles the next ones find
    Options options;
    options.cache_path = (folder / "tune.db").string();
    options.nvrtc_path = test_nvrtc_search().nvrtc_path;
    bench_ = std::make_unique<Gemma4Bench>(options, open_cuda_device(0));
  }
  Gemma4Bench& bench() { return *bench_; }

 private:
  std::unique_ptr<Gemma4Bench> bench_;
};

TEST_P(Gemma4GpuTest, AgreesWithGoldenTensorsInAnySteps) {
  const GoldenLayers golden;
  expect_golden(bench(), golden,
                {.layout = GetParam(),
                 .max_prefill = GoldenLayers::kNumTokens,
                 .prefills = all_sizes(1, GoldenLayers::kNumTokens),
                 .verifies = {}});
  expect_golden(bench(), golden,
                {.layout = GetParam(),
                 .max_prefill = 40,
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
                           .num_steps = is_unified(GetParam()) ? 400 : 1000});
  }
}

TEST_P(Gemma4GpuTest, AReplayedStepIsRightAndEqualToADirectOne) {
  expect_right_replays(bench(), {.global_layout = GetParam(),
                                 .batch = 1,
                                 .num_replays = 1000,
                                 .compare_every = is_unified(GetParam()) ? 9 : 3});
}

TEST_P(Gemma4GpuTest, AReplayedBatchIsRightWhileItsSequencesChange) {
  expect_right_replays(bench(), {.global_layout = GetParam(),
                                 .batch = 3,
                                 .num_replays = 1000,
                                 .compare_every = is_unified(GetParam()) ? 19 : 9});
}

INSTANTIATE_TEST_SUITE_P(Layouts, Gemma4GpuTest, testing::ValuesIn(kGlobalLayouts), name_of_layout);

}  // namespace
}  // namespace attune
