#include "cli/model_bench.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/support/test_data.h"

namespace attune {
namespace {

constexpr double kHidden = 5376, kMlp = 21504, kVocab = 262144;
constexpr int kSlidingLayers = 50, kGlobalLayers = 10;
// q, k, v and o of 32 and 16 heads of 256; q, k and o of 32 and 4 heads of 512: v is k's.
constexpr double kSlidingMatrices = kHidden * (8192 + 4096 + 4096 + 8192 + 3 * kMlp);
constexpr double kGlobalMatrices = kHidden * (16384 + 2048 + 16384 + 3 * kMlp);
constexpr double kMatrices =
    kSlidingLayers * kSlidingMatrices + kGlobalLayers * kGlobalMatrices + kVocab * kHidden;
// Four norms a layer, those of queries and keys, and a scalar; the last norm.
constexpr double kVectors = kSlidingLayers * (4 * kHidden + 2 * 256 + 1) +
                            kGlobalLayers * (4 * kHidden + 2 * 512 + 1) + kHidden;

ModelConfig config_of(const std::string& size) {
  return ModelConfig::from_file(test_data("gemma4-configs/" + size + "-newer.json"));
}

TEST(ModelBench, AStepReadsEveryWeightOnce) {
  EXPECT_EQ(step_weight_bytes(config_of("31b"), LinearWeights::kBf16), 2 * (kMatrices + kVectors));
  EXPECT_EQ(step_weight_bytes(config_of("31b"), LinearWeights::kBf16), 61'394'690'680);
}

TEST(ModelBench, AHeadOfItsOwnIsReadInPlaceOfTheEmbedding) {
  ModelConfig config = config_of("31b");
  config.tie_word_embeddings = false;
  EXPECT_EQ(step_weight_bytes(config, LinearWeights::kBf16), 2 * (kMatrices + kVectors));
}

TEST(ModelBench, PackedWeightsAreNineSixteenthsOfAByte) {
  EXPECT_EQ(step_weight_bytes(config_of("31b"), LinearWeights::kInt4),
            kMatrices * 9 / 16 + 2 * kVectors);
  EXPECT_EQ(step_weight_bytes(config_of("31b"), LinearWeights::kInt4), 17'269'170'808);
}

TEST(ModelBench, AStepReadsTheExpertsThatItsTokensChoose) {
  const ModelConfig config = config_of("26b-a4b");
  // 30 layers of 128 experts, gate, up and down of 704.
  const double experts = 30 * 128.0 * 3 * 704 * 2816 * 2;
  const double bytes = step_weight_bytes(config, LinearWeights::kBf16);
  EXPECT_EQ(bytes - experts / 16, step_weight_bytes(config, LinearWeights::kBf16, 0));
  EXPECT_NEAR(step_weight_bytes(config, LinearWeights::kBf16, 2) - bytes, experts * 15 / 256, 1);
  EXPECT_EQ(bytes, 7'645'061'180);
  // The router stays as it is.
  const double router = 30 * 128.0 * 2816 * 2;
  EXPECT_LT(step_weight_bytes(config, LinearWeights::kInt4), (bytes - router) / 3);
}

TEST(ModelBench, AStepReadsAFewRowsOfPerLayerInputs) {
  const double table = 262144.0 * 35 * 256 * 2;
  EXPECT_NEAR(step_weight_bytes(config_of("e2b"), LinearWeights::kBf16), 4.6e9, 0.1e9);
  EXPECT_LT(step_weight_bytes(config_of("e2b"), LinearWeights::kBf16), table);
}

TEST(ModelBench, AStepReadsNoMoreKeysThanAWindowHas) {
  const ModelConfig config = config_of("31b");
  // 16 heads of 256 for K and for V; 4 heads of 512 for both.
  const double sliding_row = kSlidingLayers * 16 * 2 * 256 * 2.0;
  const double global_row = kGlobalLayers * 4 * 2 * 512 * 2.0;
  const auto bytes = [&](int context) {
    return step_cache_bytes(config, KvLayout::kContiguous, context);
  };
  EXPECT_EQ(bytes(512), 512 * (sliding_row + global_row));
  EXPECT_EQ(bytes(1024), 1024 * (sliding_row + global_row));
  EXPECT_EQ(bytes(1025), 1024 * sliding_row + 1025 * global_row);
  EXPECT_EQ(bytes(4096), 1'174'405'120);
}

TEST(ModelBench, UnifiedRowsHoldKeysAndValuesIn640Numbers) {
  const ModelConfig config = config_of("31b");
  for (const KvLayout layout : {KvLayout::kUnified, KvLayout::kUnifiedPaged}) {
    EXPECT_EQ(step_cache_bytes(config, layout, 4096), 1'048'576'000);
  }
  // The sliding layers' share, and 4 heads of 640 numbers.
  EXPECT_EQ(step_cache_bytes(config, KvLayout::kUnified, 4096),
            kSlidingLayers * 1024 * 16 * 2 * 256 * 2.0 + kGlobalLayers * 4096 * 4 * 640 * 2.0);
}

std::string refusal(const ModelBenchWish& wish) {
  try {
    require_possible(config_of("31b"), wish);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ModelBench, WhatNoModelCanTakeIsRefusedWithNumbers) {
  EXPECT_EQ(refusal({{512, 262144 - 16}, {1, 16}, 262144}), "accepted");
  EXPECT_EQ(refusal({{512, 262144 - 15}, {1, 16}}),
            "the context does not fit into the model: context=262129 tokens=16 "
            "max_position_embeddings=262144; name contexts up to 262128 with --context");
  EXPECT_EQ(refusal({{512}, {1, 17}}),
            "a step cannot have so many tokens: tokens=17; name 1 to 16 with --tokens");
  EXPECT_EQ(refusal({{512}, {1}, 262145}),
            "the prompt does not fit into the model: prefill=262145 "
            "max_position_embeddings=262144; name up to 262144 with --prefill");
}

// Keys that each query sees: 1 + 2 + ... up to a window.
TEST(ModelBench, APromptMultipliesEveryWeightWithEveryTokenAndQueriesWithTheirKeys) {
  const double linear = 2 * (kMatrices - kVocab * kHidden), logits = 2 * kVocab * kHidden;
  const auto attention = [](double sliding_keys, double global_keys) {
    return 4 * (kSlidingLayers * sliding_keys * 32 * 256 + kGlobalLayers * global_keys * 32 * 512);
  };
  const ModelConfig config = config_of("31b");
  EXPECT_EQ(prefill_flops(config, 1), linear + logits + attention(1, 1));
  EXPECT_EQ(prefill_flops(config, 100), 100 * linear + logits + attention(5050, 5050));
  EXPECT_EQ(prefill_flops(config, 1026),
            1026 * linear + logits + attention(524800 + 2 * 1024, 1026 * 1027 / 2));
}

}  // namespace
}  // namespace attune
