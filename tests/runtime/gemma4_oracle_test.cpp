#include "tests/support/gemma4_oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "runtime/checkpoint.h"
#include "tests/support/tensor_values.h"
#include "tests/support/test_data.h"
#include "tuner/reference.h"

namespace attune::oracle {
namespace {

// The checkpoint and what a public implementation computed with it in fp32 from position 0.
class Gemma4Oracle : public ::testing::Test {
 protected:
  const Checkpoint checkpoint_ = Checkpoint::open(test_data("gemma4-tiny"));
  const Gemma4Geometry& model_ = checkpoint_.config.geometry;
  const ModelFloats weights_ = floats_of(checkpoint_.config, checkpoint_.weights);
  const Safetensors golden_{test_data("gemma4-tiny") / "golden.safetensors"};

  LayerAttention run(int layer_idx) const {
    return layer_attention(golden_floats(name(layer_idx) + ".attn_in"), weights(layer_idx), model_,
                           layer_idx);
  }
  const LayerWeights& weights(int layer_idx) const {
    return weights_.layers.at(static_cast<std::size_t>(layer_idx));
  }
  std::vector<float> golden_floats(const std::string& tensor) const {
    return floats_of(golden_.at(tensor));
  }
  Rows golden(const std::string& tensor) const { return widen(golden_floats(tensor)); }
  static std::string name(int layer_idx) { return "layer" + std::to_string(layer_idx); }
};

TEST_F(Gemma4Oracle, GoldenInputsAreWhatTheInputNormGives) {
  for (const int idx : {0, 5}) {
    const Rows hidden = golden("hidden." + std::to_string(idx));
    const Rows normed =
        rms_norm(hidden, weights(idx).input_norm, model_.hidden_size, model_.rms_norm_eps);
    const Rows attn_in = golden(name(idx) + ".attn_in");
    ASSERT_EQ(normed.size(), attn_in.size());
    const double error = relative_l2(normed, attn_in);
    std::printf("layer %d: input norm of hidden.%d against attn_in, relative L2 %.3g\n", idx, idx,
                error);
    EXPECT_LT(error, 1e-6);
  }
}

TEST_F(Gemma4Oracle, AgreesWithTheGoldenAttentionOfASlidingAndAGlobalLayer) {
  for (const int idx : {0, 5}) {
    const Rows attn_out = run(idx).attn_out;
    const Rows expected = golden(name(idx) + ".attn_out");
    ASSERT_EQ(attn_out.size(), expected.size());
    const double error = relative_l2(attn_out, expected);
    std::printf("layer %d: attn_out, relative L2 %.3g\n", idx, error);
    EXPECT_LT(error, 1e-5);
  }
}

// The golden tensors would not notice a mask that is off by one if every key weighed little.
TEST_F(Gemma4Oracle, GoldenTensorsTellGeometriesApart) {
  const auto error_with = [&](int idx, auto change) {
    Gemma4Geometry model = model_;
    LayerGeometry& layer = model.layers[static_cast<std::size_t>(idx)];
    change(&layer);
    const auto attn_in = golden_floats(name(idx) + ".attn_in");
    const double error = relative_l2(layer_attention(attn_in, weights(idx), model, idx).attn_out,
                                     golden(name(idx) + ".attn_out"));
    return error;
  };
  const double near = error_with(0, [](LayerGeometry* layer) { layer->window = 31; });
  const double far = error_with(0, [](LayerGeometry* layer) { layer->window = 33; });
  const double pairs = error_with(5, [](LayerGeometry* layer) { layer->rope.num_pairs = 63; });
  const double exponent = error_with(5, [](LayerGeometry* layer) { layer->rope.theta = 1.01e6; });
  std::printf("window 31: %.3g, window 33: %.3g, 63 pairs: %.3g, theta 1.01e6: %.3g\n", near, far,
              pairs, exponent);
  for (const double error : {near, far, pairs, exponent}) EXPECT_GT(error, 1e-4);
}

// Scores of a global layer once from K, once from V and the rotated part of K.
struct Scores {
  Rows direct;
  Rows unified;
  double largest_error = 0;  // over the sum of absolute products
};

bool turns(const RopeGeometry& rope, int dim) { return dim % (rope.head_dim / 2) < rope.num_pairs; }

Scores scores_both_ways(const LayerAttention& a, const LayerWeights& weights,
                        const LayerGeometry& layer, double eps) {
  const std::size_t dim = static_cast<std::size_t>(layer.head_dim);
  const Rows q_factors = inverse_rms(a.raw_q, layer.head_dim, eps);
  const std::size_t group_size = static_cast<std::size_t>(layer.group_size());
  const std::size_t num_kv_heads = static_cast<std::size_t>(layer.num_kv_heads);
  Scores scores;
  for (std::size_t q = 0; q < a.q.size() / dim; ++q) {
    const std::size_t kv_head = q % static_cast<std::size_t>(layer.num_q_heads) / group_size;
    for (std::size_t k = kv_head; k < a.k.size() / dim; k += num_kv_heads) {
      double direct = 0, unified = 0, magnitude = 0;
      for (std::size_t d = 0; d < dim; ++d) {
        const double term = a.q[q * dim + d] * a.k[k * dim + d];
        direct += term;
        magnitude += std::abs(term);
        // The product of two bf16 weights is exact in fp32.
        const double folded = weights.q_norm[d] * weights.k_norm[d];
        unified += turns(layer.rope, static_cast<int>(d))
                       ? term
                       : a.raw_q[q * dim + d] * q_factors[q] * folded * a.v[k * dim + d];
      }
      scores.direct.push_back(direct);
      scores.unified.push_back(unified);
      if (magnitude > 0) {
        scores.largest_error =
            std::max(scores.largest_error, std::abs(direct - unified) / magnitude);
      }
    }
  }
  return scores;
}

TEST_F(Gemma4Oracle, ScoresFromVAndTheFoldedQueryAreThoseFromK) {
  const LayerGeometry& layer = model_.layers[5];
  LayerWeights changed = weights(5);
  for (const bool spread : {false, true}) {
    if (spread) {  // norm weights that differ by a factor of hundreds, as bf16
      std::mt19937 random(7);
      std::lognormal_distribution<double> distribution(-0.35, 1.0);
      for (auto* norm : {&changed.q_norm, &changed.k_norm}) {
        for (float& weight : *norm) {
          weight = bf16_to_float(float_to_bf16(static_cast<float>(distribution(random))));
        }
      }
    }
    const LayerAttention a = layer_attention(golden_floats("layer5.attn_in"), changed, model_, 5);
    const Scores scores = scores_both_ways(a, changed, layer, model_.rms_norm_eps);
    const double error = relative_l2(scores.unified, scores.direct);
    const auto [low, high] = std::minmax_element(changed.k_norm.begin(), changed.k_norm.end());
    std::printf("k_norm %.3g..%.3g: %zu scores, relative L2 %.3g, largest %.3g of the terms\n",
                *low, *high, scores.direct.size(), error, scores.largest_error);
    EXPECT_LT(error, 1e-12);
    EXPECT_LT(scores.largest_error, 1e-12);
  }
}

TEST_F(Gemma4Oracle, KIsTheWeightTimesVInEveryDimensionThatStays) {
  const LayerGeometry& layer = model_.layers[5];
  const LayerAttention a = run(5);
  const std::size_t dim = static_cast<std::size_t>(layer.head_dim);
  int num_staying = 0;
  for (std::size_t i = 0; i < a.k.size(); ++i) {
    if (turns(layer.rope, static_cast<int>(i % dim))) continue;
    const double expected = weights(5).k_norm[i % dim] * a.v[i];
    ASSERT_NEAR(a.k[i], expected, 1e-15 * std::abs(expected)) << i;
    num_staying += i < dim;
  }
  EXPECT_EQ(num_staying, 384);
}

// Against numbers worked out by hand.
TEST(Gemma4OracleSteps, QueriesAreTheLastPositionsAndAWindowCountsTheQueryItself) {
  const LayerGeometry layer{
      .kind = LayerKind::kSliding, .num_q_heads = 2, .head_dim = 1, .window = 2};
  const Rows k = {0, 0, 0}, v = {1, 10, 100};
  EXPECT_EQ(attend(Rows{5, 5, 5, 5}, k, v, layer), (Rows{5.5, 5.5, 55, 55}));
  LayerGeometry global = layer;
  global.kind = LayerKind::kGlobal;
  EXPECT_NEAR(attend(Rows{5, 5}, k, v, global)[1], 37, 1e-12);
}

TEST(Gemma4OracleSteps, APairTurnsByTheAngleOfItsPosition) {
  const RopeGeometry rope{.theta = 1e4, .num_pairs = 1, .head_dim = 4, .factor = 1};
  const Rows turned = rotate(Rows{1, 2, 3, 4}, rope, 1, 2);
  EXPECT_DOUBLE_EQ(turned[0], std::cos(2.0) - 3 * std::sin(2.0));
  EXPECT_DOUBLE_EQ(turned[2], 3 * std::cos(2.0) + std::sin(2.0));
  EXPECT_EQ(turned[1], 2);
  EXPECT_EQ(turned[3], 4);
}

}  // namespace
}  // namespace attune::oracle
