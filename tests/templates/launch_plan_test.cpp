#include "templates/launch_plan.h"

#include <gtest/gtest.h>

#include "common/error.h"

namespace attune {
namespace {

Problem global_decode() {
  return Problem::parse("decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16");
}
Problem sliding_verify() {
  return Problem::parse("verify/b3/q8/kv1-131072/h32x16/d256/w1024/ring/bf16");
}

TEST(LaunchPlan, GivesOneCtaToEachSplitKvHeadAndSequence) {
  const LaunchPlan plan = plan_launch(global_decode(), {"splitkv", {16, 64, 2, 8}, 33});
  EXPECT_EQ(plan.num_row_blocks, 1);
  EXPECT_EQ(plan.split_cap, 33);
  EXPECT_EQ(plan.split.grid, (Dim3{33, 4, 1}));
  EXPECT_EQ(plan.split.block, (Dim3{256, 1, 1}));
  EXPECT_EQ(plan.split.smem_bytes, splitkv_smem_bytes({16, 64, 2, 8}, 512, KvLayout::kContiguous));
}

TEST(LaunchPlan, RoundsRowBlocksUp) {
  Problem problem = sliding_verify();  // 16 packed rows
  EXPECT_EQ(plan_launch(problem, {"splitkv", {16, 64, 2, 8}, 8}).num_row_blocks, 1);
  problem.seqlen_q = 9;  // 18 packed rows
  const LaunchPlan plan = plan_launch(problem, {"splitkv", {16, 64, 2, 8}, 8});
  EXPECT_EQ(plan.num_row_blocks, 2);
  EXPECT_EQ(plan.split.grid, (Dim3{2 * 8, 16, 1}));
  EXPECT_EQ(plan_launch(problem, {"splitkv", {32, 64, 2, 8}, 8}).num_row_blocks, 1);
}

// The CTAs are shared out to the sequences when their lengths are known; where there are not more of
// them, each has so many.
TEST(LaunchPlan, SharesTheSlotsAmongTheSequencesOfABatch) {
  Problem problem = global_decode();
  problem.batch = 8;
  for (const int cap : {1, 2, 5, 8, 9, 33, 66}) {
    const Candidate candidate{"splitkv", {16, 64, 2, 8}, cap};
    const LaunchPlan plan = plan_launch(problem, candidate);
    const bool shares = cap > 8;
    const int slots = shares ? cap : 8 * cap;
    EXPECT_EQ(shares_slots(problem, candidate), shares) << cap;
    EXPECT_EQ(candidate.variant(problem).shared_slots, shares) << cap;
    EXPECT_EQ(plan.num_slots, slots) << cap;
    EXPECT_EQ(plan.split_cap, shares ? 0 : cap) << cap;
    EXPECT_EQ(plan.split.grid, shares ? (Dim3{unsigned(cap), 4, 1}) : (Dim3{unsigned(cap), 4, 8}))
        << cap;
    EXPECT_EQ(plan.needs_combine, cap > 1) << cap;
    EXPECT_EQ(plan.o_partial_bytes, cap > 1 ? std::size_t{4} * slots * 16 * 512 * 4 : 0u) << cap;
    // Kernels of another batch.
    EXPECT_EQ(plan_launch(problem, candidate, false).num_slots, 8 * cap) << cap;
    EXPECT_EQ(plan_launch(problem, candidate, true).split_cap, 0) << cap;
    AttentionParams params{};
    set_plan_params(problem, plan, 0x10000, &params);
    EXPECT_EQ(params.num_slots, plan.num_slots) << cap;
    EXPECT_EQ(params.split_cap, plan.split_cap) << cap;
  }
  // A family that does not split.
  problem = Problem::parse("prefill/b8/q64/kv1-4096/h4x1/d128/contiguous/bf16");
  EXPECT_EQ(plan_launch(problem, {"tiled", {64, 64, 1, 4}, 1}).split.grid, (Dim3{4, 1, 8}));
  // CTAs that take one row block after another: no more than there are, and no partial results.
  problem = Problem::parse("prefill/b8/q64/kv1-4096/h8x2/d256/contiguous/bf16");
  const LaunchPlan few = plan_launch(problem, {"wgrows", {128, 64, 2, 12}, 20});
  EXPECT_EQ(few.split.grid, (Dim3{20, 1, 1}));
  EXPECT_EQ(few.split_cap, 1);
  EXPECT_EQ(few.workspace_bytes(), 0u);
  EXPECT_EQ(plan_launch(problem, {"wgrows", {128, 64, 2, 12}, 132}).split.grid, (Dim3{32, 1, 1}));
}

TEST(LaunchPlan, NeedsNoCombineAndNoWorkspaceForOneSplit) {
  const LaunchPlan plan = plan_launch(global_decode(), {"splitkv", {16, 64, 2, 8}, 1});
  EXPECT_FALSE(plan.needs_combine);
  EXPECT_EQ(plan.workspace_bytes(), 0u);
}

TEST(LaunchPlan, GivesTheCombineOneCtaForEachRowAndSliceOfColumns) {
  const LaunchPlan plan = plan_launch(sliding_verify(), {"splitkv", {16, 64, 2, 8}, 8}, false);
  EXPECT_TRUE(plan.needs_combine);
  EXPECT_EQ(plan.combine.grid, (Dim3{2 * 16, 16, 3}));  // 256 columns in 2 slices, 8 x 2 rows
  // Of shared slots a CTA has all slices.
  EXPECT_EQ(plan_launch(sliding_verify(), {"splitkv", {16, 64, 2, 8}, 8}, true).combine.grid,
            (Dim3{16, 16, 3}));
  EXPECT_EQ(plan.combine.block, (Dim3{kCombineThreads, 1, 1}));
}

TEST(LaunchPlan, HoldsEveryPartialRowInTheWorkspace) {
  const Problem problem = sliding_verify();
  const LaunchPlan plan = plan_launch(problem, {"splitkv", {32, 64, 2, 8}, 7});
  // kv heads x row blocks x splits of all sequences x BLOCK_M
  const std::size_t rows = std::size_t{16} * 1 * 7 * 32;
  EXPECT_EQ(plan.o_partial_bytes, rows * 256 * 4);
  // Then the plans of 3 sequences, 8 bytes each, in units of 256.
  EXPECT_EQ(plan.lse_partial_bytes, rows * 4 + 256);
  EXPECT_EQ(plan_launch(problem, {"splitkv", {32, 64, 2, 8}, 7}, false).lse_partial_bytes,
            rows * 3 * 4);
}

TEST(LaunchPlan, KeepsBothPartsOfTheWorkspaceAligned) {
  for (const int split_cap : {2, 3, 5, 33}) {
    const LaunchPlan plan = plan_launch(Problem::parse("decode/b1/q1/kv1/h1x1/d64/contiguous/bf16"),
                                        {"splitkv", {16, 16, 2, 2}, split_cap});
    EXPECT_EQ(plan.o_partial_bytes % 256, 0u);
    EXPECT_EQ(plan.lse_partial_bytes % 256, 0u);
    EXPECT_GE(plan.lse_partial_bytes, std::size_t{16} * split_cap * 4);
  }
}

TEST(LaunchPlan, CountsWorkspacesBeyondFourGigabytes) {
  Problem problem = global_decode();
  problem.batch = 4096;
  const LaunchPlan plan = plan_launch(problem, {"splitkv", {128, 64, 2, 8}, 4096 * 132});
  EXPECT_EQ(plan.o_partial_bytes, std::size_t{4096} * 4 * 132 * 128 * 512 * 4);
}

// Powers of two up to 16, of one row block: then the CTAs of a row block's splits lie side by side.
TEST(LaunchPlan, RefusesMoreCtasThanAGridHas) {
  const Problem problem = Problem::parse("decode/b65535/q1/kv1-131072/h32x4/d512/contiguous/bf16");
  Candidate candidate{"splitkv", {16, 64, 2, 8}, 32768};  // slots of each sequence: 2^31 - 2^15
  EXPECT_FALSE(launch_limits(problem, candidate));
  EXPECT_EQ(plan_launch(problem, candidate, false).num_slots, 65535 * 32768);
  candidate.split_cap = 65536;
  EXPECT_FALSE(launch_limits(problem, candidate));  // shared ones
  EXPECT_THROW(plan_launch(problem, candidate, false), InvalidArgument);
  const Problem chunk = Problem::parse("prefill/b1/q65536/kv1-65536/h4x4/d256/contiguous/bf16");
  const auto limit = launch_limits(chunk, {"splitkv", {16, 64, 2, 8}, kMaxTextNumber});
  ASSERT_TRUE(limit);
  EXPECT_EQ(limit->detail, "batch=1 row_blocks=4096 split_cap=1048576: more CTAs than a grid has");
  candidate.split_cap = kMaxTextNumber + 1;
  EXPECT_THROW(plan_launch(problem, candidate), InvalidArgument);
}

TEST(LaunchPlan, AClusterMergesFewSplitsWithoutACombine) {
  for (const int split_cap : {1, 2, 3, 4, 5, 8, 12, 16, 32}) {
    const bool clusters = split_cap == 2 || split_cap == 4 || split_cap == 8 || split_cap == 16;
    const LaunchPlan plan = plan_launch(global_decode(), {"swapab", {8, 16, 2, 8}, split_cap});
    const auto cap = static_cast<unsigned>(split_cap);
    EXPECT_EQ(plan.split.grid, (Dim3{cap, 4, 1}));
    EXPECT_EQ(plan.split.cluster, (Dim3{clusters ? cap : 1, 1, 1})) << split_cap;
    EXPECT_EQ(plan.needs_combine, split_cap > 1 && !clusters) << split_cap;
    // The CTAs of a cluster merge through the workspace.
    EXPECT_EQ(plan.workspace_bytes() > 0, split_cap > 1) << split_cap;
    AttentionParams params{};
    set_plan_params(global_decode(), plan, 0x10000, &params);
    EXPECT_EQ(params.merges_in_cluster, clusters ? 1 : 0) << split_cap;
  }
  // 32 packed rows in two blocks.
  const Problem verify = Problem::parse("verify/b1/q4/kv1-131072/h32x4/d512/contiguous/bf16");
  const LaunchPlan blocks = plan_launch(verify, {"swapab", {16, 16, 2, 8}, 4});
  EXPECT_EQ(blocks.split.cluster, (Dim3{1, 1, 1}));
  EXPECT_TRUE(blocks.needs_combine);
  EXPECT_EQ(plan_launch(verify, {"swapab", {32, 16, 2, 8}, 4}).split.cluster, (Dim3{4, 1, 1}));
}

// One that has to wait for the others would be slower than a combine.
TEST(LaunchPlan, ACandidateHasItsClusterWhateverTheBatch) {
  Problem problem = Problem::parse("decode/b1/q1/kv1-131072/h32x16/d256/w1024/contiguous/bf16");
  for (const int batch : {1, 20}) {
    problem.batch = batch;
    for (const unsigned split_cap : {1u, 2u, 3u, 4u, 7u, 8u, 12u, 16u, 32u}) {
      const LaunchPlan plan =
          plan_launch(problem, {"swapab", {8, 16, 2, 8}, static_cast<int>(split_cap)});
      const bool clusters = split_cap == 2 || split_cap == 4 || split_cap == 8 || split_cap == 16;
      EXPECT_EQ(plan.split.cluster.x, clusters ? split_cap : 1u) << split_cap;
      EXPECT_EQ(plan.needs_combine, split_cap > 1 && !clusters) << split_cap;
    }
  }
}

TEST(LaunchPlan, OnlyFamiliesOfClustersHaveThem) {
  for (const char* family : {"splitkv", "wgmma"}) {
    const Problem verify = Problem::parse("verify/b1/q8/kv1-4096/h8x1/d512/contiguous/bf16");
    const LaunchPlan plan = plan_launch(verify, {family, {64, 64, 1, 12}, 4});
    EXPECT_EQ(plan.split.cluster, (Dim3{1, 1, 1})) << family;
    EXPECT_TRUE(plan.needs_combine) << family;
  }
}

TEST(SetPlanParams, FillsWhatProblemAndPlanDecide) {
  const Problem problem = sliding_verify();
  const LaunchPlan plan = plan_launch(problem, {"splitkv", {16, 64, 2, 8}, 3});
  AttentionParams params{};
  set_plan_params(problem, plan, 0x10000, &params);
  EXPECT_EQ(reinterpret_cast<std::uint64_t>(params.o_partial), 0x10000u);
  EXPECT_EQ(reinterpret_cast<std::uint64_t>(params.lse_partial), 0x10000u + plan.o_partial_bytes);
  EXPECT_EQ(params.batch, 3);
  EXPECT_EQ(params.seqlen_q, 8);
  EXPECT_EQ(params.num_kv_heads, 16);
  EXPECT_EQ(params.group_size, 2);
  EXPECT_EQ(params.num_row_blocks, 1);
  EXPECT_EQ(params.split_cap, 3);
  EXPECT_EQ(params.num_slots, 9);
  EXPECT_EQ(params.window, 1024);
  EXPECT_EQ(params.causal, 1);
}

TEST(SetPlanParams, LeavesTheCallersFieldsAlone) {
  AttentionParams params{};
  params.sm_scale = 0.5f;
  params.softcap = 30.0f;
  params.ring_capacity = 2048;
  params.k_token_stride = 7;
  const Problem problem = sliding_verify();
  set_plan_params(problem, plan_launch(problem, {"splitkv", {16, 64, 2, 8}, 8}), 0, &params);
  EXPECT_EQ(params.sm_scale, 0.5f);
  EXPECT_EQ(params.softcap, 30.0f);
  EXPECT_EQ(params.ring_capacity, 2048);
  EXPECT_EQ(params.k_token_stride, 7);
}

TEST(AttentionParams, FitIntoKernelArguments) {
  static_assert(std::is_trivially_copyable_v<AttentionParams>);
  static_assert(sizeof(AttentionParams) <= 4096);
}

}  // namespace
}  // namespace attune
