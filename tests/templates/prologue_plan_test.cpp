#include "templates/prologue_plan.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "templates/prologue_config.h"

namespace attune {
namespace {

PrologueParams counts(int batch, int seqlen_q, int num_q_heads, int num_kv_heads, int num_pairs) {
  PrologueParams params{};
  params.batch = batch;
  params.seqlen_q = seqlen_q;
  params.num_q_heads = num_q_heads;
  params.num_kv_heads = num_kv_heads;
  params.num_pairs = num_pairs;
  return params;
}

TEST(ProloguePlan, GivesFewRowsACtaEach) {
  const KernelLaunch launch = plan_prologue(256, KvLayout::kRing, counts(1, 1, 32, 16, 128));
  EXPECT_EQ(launch.grid, (Dim3{1, 48, 1}));
  EXPECT_EQ(launch.block, (Dim3{32, 1, 1}));
  EXPECT_EQ(launch.smem_bytes, 0);
  EXPECT_TRUE(launch.programmatic);
}

TEST(ProloguePlan, PutsManyRowsIntoFullCtas) {
  const KernelLaunch launch =
      plan_prologue(512, KvLayout::kUnifiedPaged, counts(2, 1024, 16, 1, 64));
  EXPECT_EQ(launch.grid, (Dim3{1024, 5, 2}));
  EXPECT_EQ(launch.block, (Dim3{kPrologueMaxThreads, 1, 1}));
}

TEST(ProloguePlan, TakesLayersWithoutACacheOfTheirOwn) {
  EXPECT_EQ(plan_prologue(512, KvLayout::kContiguous, counts(1, 3, 8, 0, 64)).grid,
            (Dim3{3, 8, 1}));
}

TEST(ProloguePlan, RefusesWhatTheTemplateRefuses) {
  const auto plan = [](int head_dim, KvLayout layout, const PrologueParams& params) {
    plan_prologue(head_dim, layout, params);
  };
  EXPECT_THROW(plan(96, KvLayout::kRing, counts(1, 1, 2, 1, 16)), InvalidArgument);
  EXPECT_THROW(plan(256, KvLayout::kUnified, counts(1, 1, 2, 1, 64)), InvalidArgument);
  EXPECT_THROW(plan(512, KvLayout::kUnified, counts(1, 1, 2, 1, 256)), InvalidArgument);
  EXPECT_THROW(plan(512, KvLayout::kRing, counts(1, 1, 2, 1, 60)), InvalidArgument);
  EXPECT_THROW(plan(512, KvLayout::kRing, counts(1, 1, 2, 1, 264)), InvalidArgument);
  EXPECT_THROW(plan(512, KvLayout::kRing, counts(0, 1, 2, 1, 64)), InvalidArgument);
  EXPECT_THROW(plan(512, KvLayout::kRing, counts(1, 1, 2, -1, 64)), InvalidArgument);
  EXPECT_NO_THROW(plan(512, KvLayout::kRing, counts(1, 1, 2, 1, 0)));
}

TEST(ProloguePlan, WritesStateWithOneCta) {
  EXPECT_EQ(plan_state().grid, (Dim3{1, 1, 1}));
  EXPECT_EQ(plan_state().block, (Dim3{kMaxStateWrites, 1, 1}));
}

TEST(UnifiedWeights, AreTimesKsWhereVStandsForK) {
  std::vector<float> q_weight;
  std::vector<float> k_weight;
  for (int dim = 0; dim < 512; ++dim) {
    q_weight.push_back(1.0f + 0.001f * static_cast<float>(dim));
    k_weight.push_back(3.0f - 0.002f * static_cast<float>(dim));
  }
  const std::vector<float> folded = fold_unified_weights(q_weight, k_weight);
  ASSERT_EQ(folded.size(), 512u);
  for (int dim = 0; dim < 512; ++dim) {
    const bool rotates = dim < 64 || (dim >= 256 && dim < 320);
    EXPECT_EQ(folded[dim], rotates ? q_weight[dim] : q_weight[dim] * k_weight[dim]) << dim;
  }
  EXPECT_THROW(fold_unified_weights(std::span(q_weight).first(256), k_weight), InvalidArgument);
}

}  // namespace
}  // namespace attune
