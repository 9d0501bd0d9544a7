#include "tests/support/gemma4_model_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

namespace attune::oracle {
namespace {

Rows sum(std::span<const double> a, std::span<const double> b) {
  Rows c(a.begin(), a.end());
  for (std::size_t i = 0; i < c.size(); ++i) c[i] += b[i];
  return c;
}

// Row `idx` of a table of embeddings.
std::span<const float> row(const std::vector<float>& table, int idx, int width) {
  return std::span(table).subspan(static_cast<std::size_t>(idx) * static_cast<std::size_t>(width),
                                  static_cast<std::size_t>(width));
}

Rows embed(std::span<const int> tokens, const std::vector<float>& table, int width, double scale) {
  Rows rows;
  for (const int token : tokens) {
    for (const float value : row(table, token, width)) rows.push_back(value * scale);
  }
  return rows;
}

// Row `token` of `x`, of `width` values.
std::span<const double> token_row(std::span<const double> x, std::size_t token, int width) {
  const auto size = static_cast<std::size_t>(width);
  return x.subspan(token * size, size);
}

}  // namespace

double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

double silu(double x) { return x / (1 + std::exp(-x)); }

Rows gated_mlp(std::span<const double> x, std::span<const float> gate, std::span<const float> up,
               std::span<const float> down, int in_features, double (*activation)(double)) {
  Rows inner = project(x, gate, in_features);
  const Rows factor = project(x, up, in_features);
  for (std::size_t i = 0; i < inner.size(); ++i) inner[i] = activation(inner[i]) * factor[i];
  return project(inner, down, static_cast<int>(up.size()) / in_features);
}

namespace {

// Scores of a token and its experts, the most probable first.
struct Ranking {
  std::vector<int> experts;
  std::span<const double> scores;
};

std::vector<Ranking> rank_experts(std::span<const double> scores, const ModelConfig& config) {
  std::vector<Ranking> rankings;
  const auto num_experts = static_cast<std::size_t>(config.num_experts);
  for (std::size_t begin = 0; begin < scores.size(); begin += num_experts) {
    Ranking& one = rankings.emplace_back();
    one.scores = scores.subspan(begin, num_experts);
    one.experts.resize(num_experts);
    std::iota(one.experts.begin(), one.experts.end(), 0);
    std::stable_sort(one.experts.begin(), one.experts.end(), [&](int a, int b) {
      return one.scores[static_cast<std::size_t>(a)] > one.scores[static_cast<std::size_t>(b)];
    });
  }
  return rankings;
}

Rows router_scores(std::span<const double> stream, const LayerWeights& weights,
                   const ModelConfig& config) {
  const int hidden = config.hidden_size();
  Rows x = rms_norm(stream, weights.router_scale, hidden, config.geometry.rms_norm_eps);
  for (double& value : x) value /= std::sqrt(static_cast<double>(hidden));
  return project(x, weights.router_proj, hidden);
}

}  // namespace

std::vector<std::vector<Route>> route(std::span<const double> stream, const LayerWeights& weights,
                                      const ModelConfig& config) {
  const Rows scores = router_scores(stream, weights, config);
  std::vector<std::vector<Route>> routes;
  for (const Ranking& ranking : rank_experts(scores, config)) {
    const auto score = [&](int expert) { return ranking.scores[static_cast<std::size_t>(expert)]; };
    const std::span<const int> experts =
        std::span(ranking.experts).first(static_cast<std::size_t>(config.top_k_experts));
    // Divided by their sum, probabilities need no other expert.
    double total = 0;
    for (const int expert : experts) total += std::exp(score(expert) - score(experts[0]));
    auto& chosen = routes.emplace_back();
    for (const int expert : experts) {
      const double share = std::exp(score(expert) - score(experts[0])) / total;
      chosen.push_back(
          {expert, share * weights.router_per_expert_scale[static_cast<std::size_t>(expert)]});
    }
  }
  return routes;
}

double route_margin(std::span<const double> stream, const LayerWeights& weights,
                    const ModelConfig& config) {
  double margin = std::numeric_limits<double>::infinity();
  const Rows scores = router_scores(stream, weights, config);
  const auto last = static_cast<std::size_t>(config.top_k_experts) - 1;
  for (const Ranking& ranking : rank_experts(scores, config)) {
    const auto score = [&](std::size_t rank) {
      return ranking.scores[static_cast<std::size_t>(ranking.experts.at(rank))];
    };
    if (last + 1 < ranking.experts.size()) margin = std::min(margin, score(last) - score(last + 1));
  }
  return margin;
}

Rows mix_experts(std::span<const double> x, const std::vector<std::vector<Route>>& routes,
                 const LayerWeights& weights, const ModelConfig& config) {
  const int hidden = config.hidden_size();
  const auto matrix =
      static_cast<std::size_t>(hidden) * static_cast<std::size_t>(config.expert_intermediate_size);
  Rows mixed;
  for (std::size_t token = 0; token < routes.size(); ++token) {
    Rows out(static_cast<std::size_t>(hidden), 0.0);
    for (const Route& one : routes[token]) {
      const auto expert = static_cast<std::size_t>(one.expert);
      const auto gate_up = std::span(weights.expert_gate_up).subspan(2 * expert * matrix);
      const Rows y = gated_mlp(
          token_row(x, token, hidden), gate_up.first(matrix), gate_up.subspan(matrix, matrix),
          std::span(weights.expert_down).subspan(expert * matrix, matrix), hidden, gelu_tanh);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += one.weight * y[i];
    }
    mixed.insert(mixed.end(), out.begin(), out.end());
  }
  return mixed;
}

Rows per_layer_inputs(std::span<const int> tokens, std::span<const double> embedding,
                      const ModelFloats& weights, const ModelConfig& config) {
  const int width = config.per_layer_input_size;
  const int hidden = config.hidden_size();
  Rows projected = project(embedding, weights.per_layer_model_projection, hidden);
  for (double& value : projected) value /= std::sqrt(static_cast<double>(hidden));
  Rows inputs =
      rms_norm(projected, weights.per_layer_projection_norm, width, config.geometry.rms_norm_eps);
  inputs = sum(inputs, embed(tokens, weights.embed_tokens_per_layer, config.num_layers() * width,
                             config.per_layer_embedding_scale()));
  for (double& value : inputs) value /= std::numbers::sqrt2;
  return inputs;
}

Rows capped_logits(std::span<const double> x, const ModelFloats& weights,
                   const ModelConfig& config) {
  Rows logits = project(x, weights.lm_head, config.hidden_size());
  const double cap = config.final_logit_softcap;
  if (cap == 0) return logits;
  for (double& logit : logits) logit = cap * std::tanh(logit / cap);
  return logits;
}

int argmax(std::span<const double> values) {
  return static_cast<int>(std::max_element(values.begin(), values.end()) - values.begin());
}

ModelOracle::ModelOracle(ModelConfig config, ModelFloats weights)
    : config_(std::move(config)), weights_(std::move(weights)), caches_(weights_.layers.size()) {}

Rows ModelOracle::attention(std::span<const double> x, int layer_idx) {
  const LayerGeometry& layer = config_.layer(layer_idx);
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer_idx)];
  const Projections p = project_qkv(x, weights, config_.geometry, layer_idx, length_);
  // Of a layer that reads another one's, these tokens are there already: its owner came earlier.
  CacheRows& cache = caches_[static_cast<std::size_t>(layer.kv_layer)];
  cache.k.insert(cache.k.end(), p.k.begin(), p.k.end());
  cache.v.insert(cache.v.end(), p.v.begin(), p.v.end());
  return project(attend(p.q, cache.k, cache.v, layer), weights.o_proj,
                 layer.num_q_heads * layer.head_dim);
}

// The branch of the dense MLP, and of the experts where there are any.
Rows ModelOracle::feed_forward(const Rows& stream, int layer_idx) {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer_idx)];
  const int hidden = config_.hidden_size();
  const double eps = config_.geometry.rms_norm_eps;
  Rows out = gated_mlp(rms_norm(stream, weights.pre_feedforward_norm, hidden, eps),
                       weights.gate_proj, weights.up_proj, weights.down_proj, hidden, gelu_tanh);
  if (config_.num_experts > 0) {
    smallest_margin_ = std::min(smallest_margin_, route_margin(stream, weights, config_));
    const Rows x = rms_norm(stream, weights.expert_pre_feedforward_norm, hidden, eps);
    const Rows experts = mix_experts(x, route(stream, weights, config_), weights, config_);
    out = sum(rms_norm(out, weights.dense_post_feedforward_norm, hidden, eps),
              rms_norm(experts, weights.expert_post_feedforward_norm, hidden, eps));
  }
  return rms_norm(out, weights.post_feedforward_norm, hidden, eps);
}

Rows ModelOracle::layer(Rows stream, const Rows& per_layer, int layer_idx) {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer_idx)];
  const int hidden = config_.hidden_size();
  const double eps = config_.geometry.rms_norm_eps;
  const Rows attended = attention(rms_norm(stream, weights.input_norm, hidden, eps), layer_idx);
  stream = sum(stream, rms_norm(attended, weights.post_attention_norm, hidden, eps));
  stream = sum(stream, feed_forward(stream, layer_idx));
  if (config_.per_layer_input_size > 0) {
    const int width = config_.per_layer_input_size;
    Rows gated = project(stream, weights.per_layer_input_gate, hidden);
    for (std::size_t i = 0; i < gated.size(); ++i) {
      const auto token = i / static_cast<std::size_t>(width);
      const auto inputs = token_row(per_layer, token, config_.num_layers() * width);
      gated[i] =
          gelu_tanh(gated[i]) *
          inputs[static_cast<std::size_t>(layer_idx * width) + i % static_cast<std::size_t>(width)];
    }
    const Rows projected = project(gated, weights.per_layer_projection, width);
    stream = sum(stream, rms_norm(projected, weights.post_per_layer_input_norm, hidden, eps));
  }
  for (double& value : stream) value *= weights.layer_scalar[0];
  return stream;
}

ModelOracle::Step ModelOracle::push(std::span<const int> tokens) {
  Step step;
  step.hidden.push_back(
      embed(tokens, weights_.embed_tokens, config_.hidden_size(), config_.embedding_scale()));
  Rows per_layer;
  if (config_.per_layer_input_size > 0) {
    per_layer = per_layer_inputs(tokens, step.hidden[0], weights_, config_);
  }
  for (int idx = 0; idx < config_.num_layers(); ++idx) {
    step.hidden.push_back(layer(step.hidden.back(), per_layer, idx));
  }
  length_ += static_cast<int>(tokens.size());
  step.normed = rms_norm(step.hidden.back(), weights_.norm, config_.hidden_size(),
                         config_.geometry.rms_norm_eps);
  step.logits = capped_logits(step.normed, weights_, config_);
  return step;
}

void ModelOracle::cut(int length) {
  for (int idx = 0; idx < config_.num_layers(); ++idx) {
    if (!config_.layer(idx).owns_cache(idx)) continue;
    const LayerGeometry& layer = config_.layer(idx);
    const auto size = static_cast<std::size_t>(length) *
                      static_cast<std::size_t>(layer.num_kv_heads * layer.head_dim);
    CacheRows& cache = caches_[static_cast<std::size_t>(idx)];
    cache.k.resize(size);
    cache.v.resize(size);
  }
  length_ = length;
}

std::vector<int> greedy(ModelOracle* model, std::span<const int> prompt, int num_tokens) {
  std::vector<int> tokens;
  const auto vocab = static_cast<std::size_t>(model->config().vocab_size);
  ModelOracle::Step step = model->push(prompt);
  while (true) {
    tokens.push_back(argmax(std::span(step.logits).last(vocab)));
    if (static_cast<int>(tokens.size()) == num_tokens) return tokens;
    step = model->push(std::span(tokens).last(1));
  }
}

}  // namespace attune::oracle
