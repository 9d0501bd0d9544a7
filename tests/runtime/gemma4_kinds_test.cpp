// The oracle's steps that only some sizes have: experts, per-layer inputs, layers without K and V.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <vector>

#include "runtime/checkpoint.h"
#include "tests/support/gemma4_model_oracle.h"
#include "tests/support/made_tensors.h"
#include "tests/support/tiny_configs.h"

namespace attune::oracle {
namespace {

struct RandomModel {
  explicit RandomModel(const nlohmann::json& text)
      : config(ModelConfig::from_json(text.dump())),
        tensors(random_tensors(weight_specs(config), 3)),
        weights(floats_of(config, match_weights(config, views_of(tensors)))) {}

  ModelOracle oracle() const { return {config, weights}; }

  ModelConfig config;
  MadeTensors tensors;
  ModelFloats weights;
};

const std::vector<int> kTokens = {5, 41, 7, 0, 12, 33, 33, 8, 2, 47, 19, 5};

Rows logits_of(const RandomModel& model) { return model.oracle().push(kTokens).logits; }

void expect_near(const Rows& actual, const Rows& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-12) << i;
}

TEST(Gemma4Kinds, LogitsAreTheSameInAnyChunksAndAfterACut) {
  for (const auto& text : {tiny_dense_config(), tiny_per_layer_config(), tiny_experts_config()}) {
    const RandomModel model(text);
    const Rows all = logits_of(model);
    ModelOracle oracle = model.oracle();
    Rows logits;
    for (const std::size_t end : {1, 4, 5, 12}) {
      const auto begin = static_cast<std::size_t>(oracle.length());
      oracle.push(std::vector{1, 2, 3});
      oracle.cut(static_cast<int>(begin));
      const auto step = oracle.push(std::span(kTokens).subspan(begin, end - begin));
      logits.insert(logits.end(), step.logits.begin(), step.logits.end());
    }
    EXPECT_LT(relative_l2(logits, all), 1e-12);
    EXPECT_LE(std::abs(*std::max_element(all.begin(), all.end())), 3);  // the cap
  }
}

TEST(Gemma4Kinds, ATokenIsRoutedToItsMostProbableExpertsByHand) {
  ModelConfig config;
  config.geometry.hidden_size = 2;
  config.geometry.rms_norm_eps = 1e-300;
  config.num_experts = 3;
  config.top_k_experts = 2;
  LayerWeights weights;
  weights.router_scale = {1, 0.5};
  weights.router_proj = {1, 0, 0, 1, 5, 5};
  weights.router_per_expert_scale = {10, 1, 2};
  // (3, 4) has a mean square of 12.5, so the router sees (0.6, 0.4) and scores 0.6, 0.4 and 5.
  const auto routes = route(Rows{3, 4}, weights, config);
  ASSERT_EQ(routes.size(), 1u);
  ASSERT_EQ(routes[0].size(), 2u);
  EXPECT_EQ(routes[0][0].expert, 2);
  EXPECT_EQ(routes[0][1].expert, 0);
  EXPECT_NEAR(routes[0][0].weight, 2 / (1 + std::exp(-4.4)), 1e-14);
  EXPECT_NEAR(routes[0][1].weight, 10 / (1 + std::exp(4.4)), 1e-14);
  EXPECT_NEAR(route_margin(Rows{3, 4}, weights, config), 0.2, 1e-12);
}

TEST(Gemma4Kinds, ExpertsAreMixedByTheirWeightsByHand) {
  ModelConfig config;
  config.geometry.hidden_size = 2;
  config.num_experts = 2;
  config.expert_intermediate_size = 1;
  LayerWeights weights;
  weights.expert_gate_up = {1, 0, 0, 1, 0, 1, 3, 0};  // gate and up of one, then of the other
  weights.expert_down = {1, -1, 0.5f, 1};
  constexpr double kGelu1 = 0.841191990608276, kGelu2 = 1.954597694087775;
  expect_near(mix_experts(Rows{1, 2}, {{{1, 0.25}, {0, 2}}}, weights, config),
              {0.25 * 0.5 * kGelu2 * 3 + 2 * kGelu1 * 2, 0.25 * kGelu2 * 3 - 2 * kGelu1 * 2});
}

// A model with experts whose layers are what a dense model of the same other weights is.
RandomModel experts_beside(const RandomModel& dense) {
  nlohmann::json text = tiny_experts_config();
  text["moe_intermediate_size"] = 24;
  RandomModel model(text);
  for (std::size_t i = 0; i < model.weights.layers.size(); ++i) {
    LayerWeights layer = dense.weights.layers[i];
    const LayerWeights& with = model.weights.layers[i];
    layer.router_proj = with.router_proj;
    layer.router_scale = with.router_scale;
    layer.router_per_expert_scale.assign(6, 1);
    layer.expert_gate_up = with.expert_gate_up;
    layer.expert_down = with.expert_down;
    layer.dense_post_feedforward_norm.assign(16, 1);
    layer.expert_pre_feedforward_norm = layer.pre_feedforward_norm;
    layer.expert_post_feedforward_norm.assign(16, 1);
    model.weights.layers[i] = layer;
  }
  model.weights.embed_tokens = dense.weights.embed_tokens;
  model.weights.lm_head = dense.weights.lm_head;
  model.weights.norm = dense.weights.norm;
  return model;
}

// A norm of a norm is one norm, but for eps.
constexpr double kEpsError = 1e-4;

TEST(Gemma4Kinds, WithoutItsExpertsAModelIsItsDenseBranch) {
  const RandomModel dense(tiny_dense_config());
  RandomModel experts = experts_beside(dense);
  EXPECT_GT(relative_l2(logits_of(experts), logits_of(dense)), 1e-2);
  for (LayerWeights& layer : experts.weights.layers)
    layer.expert_post_feedforward_norm.assign(16, 0);
  EXPECT_LT(relative_l2(logits_of(experts), logits_of(dense)), kEpsError);
}

TEST(Gemma4Kinds, EqualExpertsAreOneMlpWhateverTheRouterSays) {
  const RandomModel dense(tiny_dense_config());
  RandomModel experts = experts_beside(dense);
  for (LayerWeights& layer : experts.weights.layers) {
    layer.dense_post_feedforward_norm.assign(16, 0);
    layer.expert_gate_up.clear();
    layer.expert_down.clear();
    for (int expert = 0; expert < 6; ++expert) {
      for (const auto* matrix : {&layer.gate_proj, &layer.up_proj}) {
        layer.expert_gate_up.insert(layer.expert_gate_up.end(), matrix->begin(), matrix->end());
      }
      layer.expert_down.insert(layer.expert_down.end(), layer.down_proj.begin(),
                               layer.down_proj.end());
    }
  }
  EXPECT_LT(relative_l2(logits_of(experts), logits_of(dense)), kEpsError);
}

TEST(Gemma4Kinds, EachBranchHasANormOfItsOwn) {
  const RandomModel model(tiny_experts_config());
  const auto error_with = [&](std::vector<float> LayerWeights::*tensor, float factor) {
    RandomModel scaled = model;
    for (LayerWeights& layer : scaled.weights.layers) {
      for (float& value : layer.*tensor) value *= factor;
    }
    return relative_l2(logits_of(scaled), logits_of(model));
  };
  EXPECT_LT(error_with(&LayerWeights::down_proj, 8), kEpsError);
  EXPECT_LT(error_with(&LayerWeights::expert_down, 8), kEpsError);
  EXPECT_GT(error_with(&LayerWeights::dense_post_feedforward_norm, 2), 1e-2);
  EXPECT_GT(error_with(&LayerWeights::expert_post_feedforward_norm, 2), 1e-2);
  EXPECT_GT(error_with(&LayerWeights::expert_pre_feedforward_norm, 2), 1e-2);
}

TEST(Gemma4Kinds, TheOrderOfExpertsDoesNotMatter) {
  const RandomModel model(tiny_experts_config());
  RandomModel turned = model;
  for (LayerWeights& layer : turned.weights.layers) {
    for (auto* tensor : {&layer.router_proj, &layer.router_per_expert_scale, &layer.expert_gate_up,
                         &layer.expert_down}) {
      std::rotate(tensor->begin(),
                  tensor->begin() + static_cast<std::ptrdiff_t>(tensor->size() / 6), tensor->end());
    }
  }
  EXPECT_LT(relative_l2(logits_of(turned), logits_of(model)), 1e-12);
}

TEST(Gemma4Kinds, PerLayerInputsAreWhatTheFormulaGivesByHand) {
  ModelConfig config;
  config.geometry.hidden_size = 4;
  config.geometry.rms_norm_eps = 1e-300;
  config.geometry.layers.resize(2);
  config.per_layer_input_size = 4;  // so embeddings are scaled by 2
  ModelFloats weights;
  // Of the embedding (2, 0, 0, 0), over the root of 4: (3, 4, 0, 0) and (0, 0, 5, 0).
  for (const float first : {3.f, 4.f, 0.f, 0.f, 0.f, 0.f, 5.f, 0.f}) {
    weights.per_layer_model_projection.insert(weights.per_layer_model_projection.end(),
                                              {first, 7, 7, 7});
  }
  weights.per_layer_projection_norm = {1, 2, 1, 1};
  weights.embed_tokens_per_layer = {9, 9, 9, 9, 9, 9, 9, 9, 1, 1, 1, 1, 0, 0.5f, 0, 0};
  Rows expected = {3.2, 5.2, 2, 2, 0, 1, 2, 0};
  for (double& value : expected) value /= std::numbers::sqrt2;
  expect_near(per_layer_inputs(std::vector{1}, Rows{2, 0, 0, 0}, weights, config), expected);
}

// The stream after a layer of the tail from those before it and before the layer whose K and V it
// reads, one token after the other.
Rows tail_layer(const RandomModel& model, const ModelOracle::Step& step, int idx, int donor_idx) {
  const ModelConfig& config = model.config;
  const double eps = config.geometry.rms_norm_eps;
  const LayerWeights& weights = model.weights.layers[static_cast<std::size_t>(idx)];
  const LayerWeights& donor = model.weights.layers[static_cast<std::size_t>(donor_idx)];
  Rows stream = step.hidden[static_cast<std::size_t>(idx)];
  const Rows before = step.hidden[static_cast<std::size_t>(donor_idx)];
  const auto q =
      project_qkv(rms_norm(stream, weights.input_norm, 16, eps), weights, config.geometry, idx);
  EXPECT_TRUE(q.k.empty());
  const auto kv =
      project_qkv(rms_norm(before, donor.input_norm, 16, eps), donor, config.geometry, donor_idx);
  const LayerGeometry& layer = config.layer(idx);
  const auto add = [&](const Rows& rows, const std::vector<float>& norm) {
    const Rows normed = rms_norm(rows, norm, 16, eps);
    for (std::size_t i = 0; i < stream.size(); ++i) stream[i] += normed[i];
  };
  add(project(attend(q.q, kv.k, kv.v, layer), weights.o_proj, layer.num_q_heads * layer.head_dim),
      weights.post_attention_norm);
  add(gated_mlp(rms_norm(stream, weights.pre_feedforward_norm, 16, eps), weights.gate_proj,
                weights.up_proj, weights.down_proj, 16, gelu_tanh),
      weights.post_feedforward_norm);
  const Rows inputs = per_layer_inputs(kTokens, step.hidden[0], model.weights, config);
  Rows gated = project(stream, weights.per_layer_input_gate, 16);
  for (std::size_t token = 0; token < kTokens.size(); ++token) {
    for (std::size_t i = 0; i < 8; ++i) {
      gated[token * 8 + i] = gelu_tanh(gated[token * 8 + i]) *
                             inputs[(token * 6 + static_cast<std::size_t>(idx)) * 8 + i];
    }
  }
  add(project(gated, weights.per_layer_projection, 8), weights.post_per_layer_input_norm);
  for (double& value : stream) value *= weights.layer_scalar[0];
  return stream;
}

TEST(Gemma4Kinds, TheTailReadsKeysAndValuesOfTheLastLayerOfItsKindThatHasThem) {
  const RandomModel model(tiny_per_layer_config());
  const auto step = model.oracle().push(kTokens);
  for (const auto& [idx, donor] : {std::pair(3, 1), std::pair(4, 1), std::pair(5, 2)}) {
    EXPECT_LT(relative_l2(tail_layer(model, step, idx, donor),
                          step.hidden[static_cast<std::size_t>(idx) + 1]),
              1e-13);
  }
  EXPECT_GT(relative_l2(tail_layer(model, step, 3, 0), step.hidden[4]), 1e-3);
  EXPECT_EQ(model.weights.layers[3].up_proj.size(), 48u * 16u);  // twice as wide
}

}  // namespace
}  // namespace attune::oracle
