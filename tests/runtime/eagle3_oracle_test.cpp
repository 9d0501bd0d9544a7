#include "tests/support/eagle3_oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "runtime/checkpoint.h"
#include "tests/support/made_tensors.h"
#include "tests/support/tiny_configs.h"

namespace attune::oracle {
namespace {

// Two hidden, one head of two dimensions, one MLP channel: small enough to be worked out by hand.
// Queries and keys are of the embedding alone, values of the feature.
Eagle3Config hand_config() {
  return {.hidden_size = 2,
          .target_hidden_size = 2,
          .head_dim = 2,
          .rms_norm_eps = 1e-300,
          .draft_vocab_size = 2,
          .target_vocab_size = 2,
          .norm_before_residual = true,
          .taps = {1, 2}};
}

Eagle3Floats hand_weights() {
  Eagle3Floats weights;
  weights.embed_tokens = {9, 9, 3, 3};  // of both tokens (1, 1) after the norm
  weights.fc = {1, 0, 0, 0, 0, 0, 0, 2};
  weights.input_norm = {1, 1};
  weights.hidden_norm = {2, 1};
  weights.q_proj = {1, 0, 0, 0, 0, 1, 0, 0};
  weights.k_proj = {1, 0, 0, 0, 0, 1, 0, 0};
  weights.v_proj = {0, 0, 1, 0, 0, 0, 0, 1};
  weights.o_proj = {1, 0, 2, 0};
  weights.post_attention_norm = {1, 1};
  weights.gate_proj = {1, 0};
  weights.up_proj = {0, 3};
  weights.down_proj = {1, -1};
  weights.norm = {1, 2};
  weights.lm_head = {1, 0, 0, 1};
  return weights;
}

TEST(Eagle3Oracle, FeaturesAreTheFirstMatrixOfTheTapsInTheirOrder) {
  ModelOracle::Step step;
  step.hidden = {{100, 100, 100, 100}, {1, 2, 5, 6}, {3, 4, 7, 8}};
  const Rows taps = taps_of(step, hand_config());
  EXPECT_EQ(taps, (Rows{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(Eagle3Oracle(hand_config(), hand_weights()).fuse(taps), (Rows{1, 8, 5, 16}));
}

TEST(Eagle3Oracle, ASlotAloneIsWhatTheFormulasGiveByHand) {
  for (const bool norm_first : {true, false}) {
    Eagle3Config config = hand_config();
    config.norm_before_residual = norm_first;
    Eagle3Oracle head(config, hand_weights());
    // The feature (1, -1) is (2, -1) after its norm, and that is V. Attention adds (2, 4).
    const auto step = head.push(std::vector{1}, Rows{1, -1});
    const double y0 = norm_first ? 4 : 3, y1 = 3;
    const double rms = std::sqrt((y0 * y0 + y1 * y1) / 2);
    const double gate = y0 / rms, up = 3 * y1 / rms;
    const double mlp = gate / (1 + std::exp(-gate)) * up;
    const double g0 = y0 + mlp, g1 = y1 - mlp;
    EXPECT_NEAR(step.g[0], g0, 1e-14);
    EXPECT_NEAR(step.g[1], g1, 1e-14);
    const double out_rms = std::sqrt((g0 * g0 + g1 * g1) / 2);
    EXPECT_NEAR(step.logits[0], g0 / out_rms, 1e-14);
    EXPECT_NEAR(step.logits[1], 2 * g1 / out_rms, 1e-14);
  }
}

TEST(Eagle3Oracle, ALaterSlotWeighsEarlierOnesByTheirDistance) {
  Eagle3Floats weights = hand_weights();
  weights.down_proj = {0, 0};
  Eagle3Oracle head(hand_config(), weights);
  const auto step = head.push(std::vector{0, 1}, Rows{1, -1, -1, 1});
  // Queries and keys are (1, 1), so a score is 2 cos(distance) / sqrt(2).
  const double self = std::exp(2 / std::sqrt(2)), before = std::exp(2 * std::cos(1) / std::sqrt(2));
  const double v0 = (2 * before - 2 * self) / (before + self);
  EXPECT_NEAR(step.g[0], 2 + 2, 1e-14);
  EXPECT_NEAR(step.g[2], -2 + v0, 1e-14);
  EXPECT_NEAR(step.g[3], 1 + 2 * v0, 1e-14);
}

// A head of grouped heads on a model, each with random weights.
class RandomHead : public ::testing::Test {
 protected:
  template <typename Config>
  static auto floats(const Config& config, unsigned seed) {
    const MadeTensors made = random_tensors(weight_specs(config), seed, 48);
    return floats_of(config, match_weights(config, views_of(made)));
  }
  const ModelConfig model_config_ = ModelConfig::from_json(tiny_dense_config().dump());
  const Eagle3Config config_ = Eagle3Config::from_json(tiny_head_config().dump());
  const std::vector<int> tokens_ = {5, 41, 7, 0, 12, 33, 33, 8, 2, 47};
};

TEST_F(RandomHead, SlotsAreTheSameInAnyChunksAndAfterACut) {
  ModelOracle model(model_config_, floats(model_config_, 1));
  Eagle3Oracle whole(config_, floats(config_, 2)), head(config_, floats(config_, 2));
  const Rows features = whole.fuse(taps_of(model.push(tokens_), config_));
  const auto all = whole.push(tokens_, features);
  EXPECT_EQ(whole.length(), 10);
  Rows logits;
  for (std::size_t begin = 0; begin < 10; begin += 5) {
    head.push(std::vector{1, 2, 3}, std::span(features).first(48));
    head.cut(static_cast<int>(begin));
    const auto step = head.push(std::span(tokens_).subspan(begin, 5),
                                std::span(features).subspan(begin * 16, 80));
    logits.insert(logits.end(), step.logits.begin(), step.logits.end());
  }
  EXPECT_LT(relative_l2(logits, all.logits), 1e-13);
}

TEST_F(RandomHead, AChainGoesOnFromItsOwnFeatures) {
  ModelOracle model(model_config_, floats(model_config_, 1));
  Eagle3Oracle head(config_, floats(config_, 2));
  const Rows features = head.fuse(taps_of(model.push(tokens_), config_));
  const auto seeded = head.push(tokens_, features);
  const auto g = std::span(seeded.g).last(16);
  const auto next = head.push(std::vector{3}, g);
  head.cut(10);
  const auto other = head.push(std::vector{3}, std::span(features).last(16));
  EXPECT_GT(relative_l2(next.logits, other.logits), 1e-2);
}

}  // namespace
}  // namespace attune::oracle
