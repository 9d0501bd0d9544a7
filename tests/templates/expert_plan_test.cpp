#include "templates/expert_plan.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/error.h"

namespace attune {
namespace {

constexpr KernelConfig kConfig{.block_m = 8, .block_n = 48, .num_stages = 3, .num_warps = 8};

// Outputs of the CTA that has the most.
int busiest(const LinearPlan& plan, int num_entries) {
  const int ctas = static_cast<int>(plan.launch.grid.x);
  return (num_entries * plan.num_passes + ctas - 1) / ctas * plan.outputs_per_pass;
}

TEST(ExpertPlan, TilesCoverAnExpertAndDifferByOneOutputAtMost) {
  for (const int out : {1, 23, 24, 25, 72, 704, 2816}) {
    for (const int top_k : {1, 2, 8}) {
      for (const int num_sms : {1, 7, 132}) {
        for (const auto epilogue : {LinearEpilogue::kGeglu, LinearEpilogue::kStore}) {
          const LinearPlan plan =
              plan_linear({out, 64, epilogue, LinearWeights::kBf16, 128, top_k}, kConfig, num_sms);
          EXPECT_EQ(plan.launch.grid.x, static_cast<unsigned>(num_sms));
          EXPECT_EQ(plan.launch.smem_bytes, experts_smem_bytes(kConfig, LinearWeights::kBf16));
          const int all = plan.num_passes * plan.outputs_per_pass;
          EXPECT_GE(all, out);
          EXPECT_LT(all - out, plan.num_passes) << "a tile would have two outputs less";
          EXPECT_LE(plan.num_passes, out) << "a tile would have none";
          EXPECT_LE(plan.outputs_per_pass * linear_rows_per_output(epilogue), kConfig.block_n);
        }
      }
    }
  }
}

// Cut as finely as slots need, 8 experts of 26B-A4B would leave a tenth of an H200 idle.
TEST(ExpertPlan, TilesKeepAllSmsBusy) {
  const auto bf16 = LinearWeights::kBf16;
  const LinearPlan gate_up =
      plan_linear({704, 2816, LinearEpilogue::kGeglu, bf16, 128, 8}, kConfig, 132);
  EXPECT_LE(busiest(gate_up, 8), 1.04 * 8 * 704 / 132);
  const LinearPlan down =
      plan_linear({2816, 704, LinearEpilogue::kStore, bf16, 128, 8}, kConfig, 132);
  EXPECT_LE(busiest(down, 8), 1.04 * 8 * 2816 / 132);
}

TEST(ExpertPlan, GroupsHaveNoMoreEntriesThanTheirTokensChoose) {
  EXPECT_EQ(num_expert_groups(1), 1);
  EXPECT_EQ(num_expert_groups(16), 1);
  EXPECT_EQ(num_expert_groups(17), 2);
  EXPECT_EQ(most_expert_entries(1, 128, 8), 8);
  EXPECT_EQ(most_expert_entries(15, 128, 8), 120);
  EXPECT_EQ(most_expert_entries(512, 128, 8), 128);
  EXPECT_EQ(most_expert_entries(512, 256, 8), 128);
}

// Of 128, where each token chooses any 8 alike: 128 * (1 - (15/16)^tokens).
TEST(ExpertPlan, TypicalEntriesAreThoseThatTokensChooseOnAverage) {
  const LinearShape shape{.out_features = 704, .in_features = 2816, .num_experts = 128, .top_k = 8};
  for (const auto& [tokens, num_entries] : {std::pair(1, 8), {8, 52}, {16, 82}}) {
    const std::vector<int> entries = typical_entries(shape, tokens);
    EXPECT_EQ(entries.size(), static_cast<std::size_t>(num_entries));
    EXPECT_EQ(std::set<int>(entries.begin(), entries.end()).size(), entries.size());
    EXPECT_TRUE(std::is_sorted(entries.begin(), entries.end()));
    EXPECT_EQ(entries.front(), 0);
    EXPECT_EQ(entries.back(), 127);
  }
  LinearShape all = shape;
  all.num_experts = all.top_k = 3;
  EXPECT_EQ(typical_entries(all, 16), (std::vector<int>{0, 1, 2}));
  all.num_experts = all.top_k = 1;
  EXPECT_EQ(typical_entries(all, 1), std::vector<int>{0});
  EXPECT_EQ(typical_entries({704, 2816}, 8), std::vector<int>{0});  // no experts
}

TEST(ExpertPlan, RefusesWhatTheRouterDoesNotAdmit) {
  EXPECT_EQ(route_chunks(128, 8), 4);
  EXPECT_EQ(route_chunks(kMaxExperts, kMaxTopK), kMaxRouteChunks);
  EXPECT_EQ(route_chunks(33, 1), 2);
  EXPECT_THROW(route_chunks(kMaxExperts + 1, 8), InvalidArgument);
  EXPECT_THROW(route_chunks(128, kMaxTopK + 1), InvalidArgument);
  EXPECT_THROW(route_chunks(4, 5), InvalidArgument);
}

TEST(PerLayerPlan, RefusesWidthsThatLanesCannotHold) {
  EXPECT_EQ(per_layer_chunks(8), 1);
  EXPECT_EQ(per_layer_chunks(256), 1);
  EXPECT_EQ(per_layer_chunks(264), 2);
  EXPECT_THROW(per_layer_chunks(0), InvalidArgument);
  EXPECT_THROW(per_layer_chunks(100), InvalidArgument);
  EXPECT_THROW(per_layer_chunks(1032), InvalidArgument);
  EXPECT_EQ(plan_per_layer_inputs(35, 3).grid, (Dim3{3, 5, 1}));
}

}  // namespace
}  // namespace attune
