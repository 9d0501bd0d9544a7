#include "templates/model_plan.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "templates/expert_plan.h"
#include "templates/prologue_plan.h"

namespace attune {
namespace {

constexpr KernelConfig kConfig{.block_m = 8, .block_n = 48, .num_stages = 4, .num_warps = 8};

// As linear.cuh divides them: every output belongs to one pass of one CTA, and no pass is longer than
// its box or shorter by more than one.
void expect_all_outputs_once(const LinearShape& shape, const KernelConfig& config, int num_sms) {
  const LinearPlan plan = plan_linear(shape, config, num_sms);
  const int num_ctas = static_cast<int>(plan.launch.grid.x);
  ASSERT_LE(num_ctas, num_sms);
  ASSERT_LE(plan.outputs_per_pass * linear_rows_per_output(shape.epilogue), config.block_n);
  std::int64_t next = 0;
  for (std::int64_t cta = 0; cta < num_ctas; ++cta) {
    const std::int64_t begin = cta * shape.out_features / num_ctas;
    const std::int64_t end = (cta + 1) * shape.out_features / num_ctas;
    ASSERT_EQ(begin, next);
    const std::int64_t missing = plan.num_passes * plan.outputs_per_pass - (end - begin);
    ASSERT_GE(missing, 0);
    ASSERT_LE(missing, plan.num_passes) << "a pass is shorter by more than one";
    ASSERT_TRUE(missing < plan.num_passes || plan.outputs_per_pass > 1) << "nothing is left";
    next = end;
  }
  ASSERT_EQ(next, shape.out_features);
}

TEST(ModelPlan, EveryOutputIsComputedOnce) {
  for (const auto epilogue :
       {LinearEpilogue::kStore, LinearEpilogue::kGeglu, LinearEpilogue::kLogits}) {
    for (const int out_features : {1, 7, 8, 41, 320, 1055, 1056, 1057, 5376, 21504, 262144}) {
      for (const int block_n : {16, 32, 48, 64}) {
        for (const int num_sms : {1, 2, 78, 132}) {
          SCOPED_TRACE(testing::Message() << out_features << " " << block_n << " " << num_sms);
          KernelConfig config = kConfig;
          config.block_n = block_n;
          ASSERT_NO_FATAL_FAILURE(
              expect_all_outputs_once({out_features, 64, epilogue}, config, num_sms));
        }
      }
    }
  }
}

// The layers of Gemma 4 31B on an H200: no CTA reads 1% more than its share.
TEST(ModelPlan, CtasHaveEqualShares) {
  for (const int out_features : {5376, 16384, 18432, 21504, 262144}) {
    const LinearPlan plan = plan_linear({out_features, 5376}, kConfig, 132);
    EXPECT_EQ(plan.launch.grid.x, 132u);
    EXPECT_LE((out_features + 131) / 132, 1.01 * out_features / 132);
  }
}

TEST(ModelPlan, RefusesWhatTheTemplateCannot) {
  EXPECT_FALSE(linear_limits({5376, 21504}, kConfig));
  const auto refused = [](LinearShape shape, KernelConfig config) {
    return linear_limits(shape, config).has_value();
  };
  EXPECT_TRUE(refused({64, 64}, {4, 48, 4, 8}));
  EXPECT_TRUE(refused({64, 64}, {8, 40, 4, 8}));
  EXPECT_TRUE(refused({64, 64}, {8, 272, 4, 8}));
  EXPECT_TRUE(refused({64, 64}, {8, 48, 0, 8}));
  EXPECT_TRUE(refused({64, 64}, {8, 48, kMaxConfigField + 1, 8}));  // an int holds its bytes
  EXPECT_TRUE(refused({64, 64}, {8, 48, 4, 4}));
  EXPECT_TRUE(refused({0, 64}, kConfig));
  EXPECT_TRUE(refused({64, 60}, kConfig));
  EXPECT_THROW(plan_linear({64, 60}, kConfig, 132), InvalidArgument);
}

// A grid has 65535 CTAs in y and z, and 2^31 - 1 in x.
TEST(ModelPlan, EveryGridHasRoomForTheLongestPrefill) {
  constexpr int kTokens = kMaxPrefillTokens;
  for (const KernelLaunch& launch :
       {plan_residual(5376, kTokens), plan_argmax(kTokens), plan_gate(kTokens, kMaxLinearFeatures),
        plan_per_layer_inputs(200, kTokens), plan_per_layer_gate(kTokens), plan_route(kTokens),
        plan_dequantize(kMostDequantizedRows, kMaxLinearFeatures)}) {
    EXPECT_LE(launch.grid.x, 0x7fffffffu);
    EXPECT_LE(launch.grid.y, 65535u);
    EXPECT_LE(launch.grid.z, 65535u);
  }
  EXPECT_THROW(plan_dequantize(kMostDequantizedRows + 1, 8), InvalidArgument);
  PrologueParams params{};
  params.batch = 65535;
  params.seqlen_q = kTokens;
  params.num_q_heads = 128;
  params.num_kv_heads = 32;
  const Dim3 grid = plan_prologue(256, KvLayout::kRing, params).grid;
  EXPECT_EQ(grid.x, unsigned{kTokens});
  EXPECT_LE(grid.y, 65535u);
  EXPECT_LE(grid.z, 65535u);
  const Problem problem =
      Problem::parse("prefill/b65535/q65536/kv1-65536/h4x1/d256/contiguous/bf16");
  for (const char* text : {"tiled/m128n64s1w8/x1", "wgrows/m128n64s2w12/x1048576"}) {
    const Dim3 of_attention = plan_launch(problem, Candidate::parse(text)).split.grid;
    EXPECT_GT(of_attention.x, 0u) << text;
    EXPECT_LE(of_attention.x, 0x7fffffffu) << text;
    EXPECT_LE(of_attention.y, 65535u) << text;
    EXPECT_LE(of_attention.z, 65535u) << text;
  }
}

TEST(ModelPlan, ResidualRowsHaveAThreadForEightElements) {
  EXPECT_EQ(residual_threads(64), 32);
  EXPECT_EQ(residual_threads(2048), 256);
  EXPECT_EQ(residual_threads(2056), 288);
  EXPECT_EQ(residual_threads(5376), 672);
  EXPECT_EQ(residual_threads(8192), 1024);
  for (const int hidden : {0, 60, 8200}) {
    EXPECT_THROW(residual_threads(hidden), InvalidArgument) << hidden;
  }
}

}  // namespace
}  // namespace attune
