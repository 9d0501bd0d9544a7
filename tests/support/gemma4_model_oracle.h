// The forward pass of a whole Gemma 4 text model in double, straight from its formulas: the judge
// of the model's implementations. Nothing is rounded but the embeddings' scale. Every step is a
// function of its own.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "runtime/model_config.h"
#include "tests/support/gemma4_oracle.h"
#include "tests/support/tensor_values.h"

namespace attune::oracle {

double gelu_tanh(double x);
double silu(double x);

// down(activation(gate(x)) * up(x)) of x [num_tokens, in_features].
Rows gated_mlp(std::span<const double> x, std::span<const float> gate, std::span<const float> up,
               std::span<const float> down, int in_features, double (*activation)(double));

// An expert of a token and what its output is multiplied with.
struct Route {
  int expert = 0;
  double weight = 0;
};

// For every token of the residual stream: top_k_experts routes, the most probable first.
std::vector<std::vector<Route>> route(std::span<const double> stream, const LayerWeights& weights,
                                      const ModelConfig& config);

// How far, of any token, the least probable expert that is chosen lies above the next one, in scores:
// with less precision a smaller distance is another choice.
double route_margin(std::span<const double> stream, const LayerWeights& weights,
                    const ModelConfig& config);

// Sum of the routes' experts on x [num_tokens, hidden_size].
Rows mix_experts(std::span<const double> x, const std::vector<std::vector<Route>>& routes,
                 const LayerWeights& weights, const ModelConfig& config);

// [num_tokens, num_layers, per_layer_input_size]; `embedding` is scaled, [num_tokens, hidden_size].
Rows per_layer_inputs(std::span<const int> tokens, std::span<const double> embedding,
                      const ModelFloats& weights, const ModelConfig& config);

// x times the transposed lm_head, capped.
Rows capped_logits(std::span<const double> x, const ModelFloats& weights,
                   const ModelConfig& config);

// The index of the largest number, the first of equal ones.
int argmax(std::span<const double> values);

// A sequence of tokens. Keeps the keys and values of each layer that owns a cache.
class ModelOracle {
 public:
  ModelOracle(ModelConfig config, ModelFloats weights);

  struct Step {
    // [num_tokens, hidden_size]: 0 is the scaled embedding, k the stream after layer k - 1.
    std::vector<Rows> hidden;
    Rows normed;  // the last of them after the model's norm
    Rows logits;  // [num_tokens, vocab_size]
  };
  // The next tokens of the sequence.
  Step push(std::span<const int> tokens);
  int length() const { return length_; }
  // The smallest route_margin so far.
  double smallest_margin() const { return smallest_margin_; }
  void cut(int length);

  const ModelConfig& config() const { return config_; }

 private:
  Rows attention(std::span<const double> x, int layer_idx);
  Rows feed_forward(const Rows& stream, int layer_idx);
  Rows layer(Rows stream, const Rows& per_layer, int layer_idx);

  ModelConfig config_;
  ModelFloats weights_;
  struct CacheRows {
    Rows k, v;
  };
  std::vector<CacheRows> caches_;  // of each layer
  int length_ = 0;
  double smallest_margin_ = std::numeric_limits<double>::infinity();
};

// The greedy continuation of a prompt by `num_tokens` tokens.
std::vector<int> greedy(ModelOracle* model, std::span<const int> prompt, int num_tokens);

}  // namespace attune::oracle
