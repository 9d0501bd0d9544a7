#include "templates/config.h"
#include "templates/wgrows_config.h"

#include <vector>

#include <gtest/gtest.h>

namespace attune {
namespace {

std::vector<KernelConfig> all_configs() {
  std::vector<KernelConfig> configs;
  for (const int block_m : {16, 32, 64, 128}) {
    for (const int block_n : {16, 32, 64, 128}) {
      for (const int num_warps : {1, 2, 4, 8, 16}) {
        configs.push_back({block_m, block_n, 2, num_warps});
      }
    }
  }
  return configs;
}

TEST(ScoreWarpGrid, GivesEveryWarpWholeMmaTiles) {
  for (const KernelConfig& config : all_configs()) {
    const WarpGrid grid = score_warp_grid(config);
    if (grid.rows == 0) continue;
    EXPECT_EQ(grid.rows * grid.tokens, config.num_warps);
    EXPECT_EQ(config.block_m % (grid.rows * kMmaRows), 0);
    EXPECT_EQ(config.block_n % (grid.tokens * kMmaTokens), 0);
  }
}

TEST(ScoreWarpGrid, IsEmptyOnlyWhenThereAreMoreWarpsThanTiles) {
  for (const KernelConfig& config : all_configs()) {
    const int tiles = (config.block_m / kMmaRows) * (config.block_n / kMmaTokens);
    EXPECT_EQ(score_warp_grid(config).rows == 0, config.num_warps > tiles)
        << config.block_m << "x" << config.block_n << " warps=" << config.num_warps;
  }
}

TEST(ScoreWarpGrid, SpreadsASingleRowTileOverTokens) {
  const WarpGrid grid = score_warp_grid({16, 64, 2, 8});
  EXPECT_EQ(grid.rows, 1);
  EXPECT_EQ(grid.tokens, 8);
}

TEST(ProbabilityPitch, PutsEightRowsIntoDifferentBanks) {
  for (const int block_n : {16, 32, 48, 64, 96, 128}) {
    const int pitch_bytes = probability_pitch({16, block_n, 2, 4}) * kBytesPerElement;
    EXPECT_EQ(pitch_bytes % 16, 0);
    bool used[8] = {};  // 16-byte columns of the 128-byte bank line
    for (int row = 0; row < 8; ++row) used[row * pitch_bytes / 16 % 8] = true;
    for (const bool hit : used) EXPECT_TRUE(hit) << "block_n=" << block_n;
  }
}

TEST(SplitKvSmemBytes, AddsUpByHand) {
  // Q 16x512, K and V 2x64x512 each, P 16x72, all bf16; 16 rows x (8 maxima + 1 scale) floats, an
  // 8-byte offset and two 4-byte limits.
  EXPECT_EQ(splitkv_smem_bytes({16, 64, 2, 8}, 512, KvLayout::kContiguous),
            2 * (16 * 512 + 2 * 2 * 64 * 512 + 16 * 72) + 16 * (4 * 9 + 8 + 2 * 4));
}

TEST(SplitKvSmemBytes, GrowsWithEveryDimension) {
  const int base = splitkv_smem_bytes({16, 32, 2, 4}, 128, KvLayout::kContiguous);
  EXPECT_GT(splitkv_smem_bytes({32, 32, 2, 4}, 128, KvLayout::kContiguous), base);
  EXPECT_GT(splitkv_smem_bytes({16, 64, 2, 4}, 128, KvLayout::kContiguous), base);
  EXPECT_GT(splitkv_smem_bytes({16, 32, 3, 4}, 128, KvLayout::kContiguous), base);
  EXPECT_GT(splitkv_smem_bytes({16, 32, 2, 4}, 256, KvLayout::kContiguous), base);
}

// A warp owns 4096 / head_dim rows at most; warps of other rows share its stream.
TEST(StreamGrid, GivesAWarpAStreamUntilThereAreMoreRowsThanItHolds) {
  const auto expect = [](const KernelConfig& config, int head_dim, const StreamGrid& expected) {
    const StreamGrid grid = stream_grid(config, head_dim);
    EXPECT_EQ(grid.warp_rows, expected.warp_rows) << head_dim;
    EXPECT_EQ(grid.row_groups, expected.row_groups) << head_dim;
    EXPECT_EQ(grid.streams, expected.streams) << head_dim;
  };
  expect({8, 16, 2, 8}, 512, {8, 1, 8});
  expect({16, 16, 2, 8}, 512, {8, 2, 4});
  expect({32, 16, 2, 8}, 512, {8, 4, 2});
  expect({32, 16, 2, 8}, 256, {16, 2, 4});
  expect({32, 16, 2, 8}, 128, {32, 1, 8});
  expect({8, 16, 2, 4}, 64, {8, 1, 4});
  expect({32, 16, 2, 2}, 512, {0, 0, 0});   // four row groups
  expect({64, 16, 2, 12}, 512, {0, 0, 0});  // eight
  expect({12, 16, 2, 4}, 256, {0, 0, 0});   // no whole mma
}

TEST(SwapAbSmemBytes, AddsUpByHand) {
  // 8 streams of 1 slot with K and V of 16x512, queries 8x512, both bf16; 4 barriers a slot; 8 rows
  // x (8 bytes of statistics and a 4-byte factor a stream, an 8-byte offset).
  EXPECT_EQ(swapab_smem_bytes({8, 16, 1, 8}, 512, KvLayout::kContiguous),
            2 * (8 * 2 * 16 * 512 + 8 * 512) + 8 * 4 * 8 + 8 * (8 * 12 + 8));
  // 2 streams of 4 slots with unified rows of 640, four warps each.
  EXPECT_EQ(swapab_smem_bytes({32, 16, 4, 8}, 512, KvLayout::kUnified),
            2 * (2 * 4 * 16 * 640 + 32 * 512) + 2 * 4 * 4 * 8 + 32 * (2 * 12 + 8));
  // The streams' outputs, as floats with 4 of padding a row, are more than their slots.
  EXPECT_EQ(swapab_smem_bytes({32, 16, 1, 8}, 128, KvLayout::kContiguous),
            8 * 32 * 132 * 4 + 2 * 32 * 128 + 8 * 4 * 8 + 32 * (8 * 12 + 8));
}

TEST(OneRoundSmemBytes, AddsUpByHand) {
  // 4 warps with 3 slots of K and V of 16x256, queries 8x256, P of 64 keys x 8 rows, all bf16; 4
  // barriers a slot; a maximum and a sum of 8 rows for each warp.
  EXPECT_EQ(oneround_smem_bytes({8, 16, 3, 4}, 256, KvLayout::kRing),
            2 * (4 * 3 * 2 * 16 * 256 + 8 * 256 + 64 * 8) + 4 * 3 * 4 * 8 + 4 * 8 * (4 + 4));
  // 8 warps with one slot of unified rows of 640.
  EXPECT_EQ(oneround_smem_bytes({16, 16, 1, 8}, 512, KvLayout::kUnified),
            2 * (8 * 16 * 640 + 16 * 512 + 128 * 16) + 8 * 4 * 8 + 8 * 16 * (4 + 4));
}

TEST(WgmmaSmemBytes, AddsUpByHand) {
  // Q 64x512, K and V 64x512 each, two P of 64x64, all bf16; 64 rows x (2 factors, 2 magnitudes and an
  // inverse sum); a full and an empty barrier for each of 4 parts, 3 for each P, one for Q.
  EXPECT_EQ(wgmma_smem_bytes({64, 64, 1, 12}, 512, KvLayout::kContiguous),
            2 * (64 * 512 + 2 * 64 * 512 + 2 * 64 * 64) + 64 * 4 * 5 + 8 * (2 * 4 + 3 * 2 + 1));
  // Two slots of 64x640 with P inside, each in two parts and with its own factors.
  EXPECT_EQ(wgmma_smem_bytes({64, 64, 2, 12}, 512, KvLayout::kUnified),
            2 * (64 * 512 + 2 * 64 * 640) + 64 * 4 * 5 + 8 * (2 * 2 * 2 + 2 * 2 + 1));
}

TEST(WgrowsSmemBytes, AddsUpByHand) {
  // Q 128x256, two K and V each of 64x256; a full and an empty barrier for each of them, one for Q.
  EXPECT_EQ(wgrows_smem_bytes({128, 64, 2, 12}, 256, KvLayout::kRing),
            2 * (128 * 256 + 4 * 64 * 256) + 8 * (2 * 4 + 1));
}

// What a block may have on sm_90.
TEST(WgmmaSmemBytes, LeavesRoomForTwoSlotsOfUnifiedRows) {
  constexpr int kMostBytes = 232448;
  EXPECT_LE(wgmma_smem_bytes({64, 64, 2, 12}, 512, KvLayout::kUnified), kMostBytes);
  EXPECT_LE(wgmma_smem_bytes({64, 32, 4, 12}, 512, KvLayout::kUnified), kMostBytes);
  EXPECT_LE(wgmma_smem_bytes({64, 32, 2, 12}, 512, KvLayout::kContiguous), kMostBytes);
  EXPECT_GT(wgmma_smem_bytes({64, 64, 2, 12}, 512, KvLayout::kContiguous), kMostBytes);
}

TEST(CombineColumns, DivideEveryHeadDim) {
  for (const int head_dim : {64, 128, 256, 512}) {
    EXPECT_EQ(head_dim % combine_columns(head_dim), 0);
    EXPECT_LE(combine_columns(head_dim), 128);
  }
}

}  // namespace
}  // namespace attune
