// Attention of one Gemma 4 layer in double, straight from the formula: what kernels and models are
// judged by. Every step is a function of its own, so a test can start from inputs it has rounded.
#pragma once

#include <span>
#include <vector>

#include "runtime/gemma4_geometry.h"
#include "runtime/weights.h"

namespace attune::oracle {

// Rows are tokens, then heads, then dimensions: [num_tokens, num_heads, head_dim].
using Rows = std::vector<double>;

// [out_features, in_features], widened. Layers without a tensor have an empty one.
using LayerWeights = LayerTensors<std::vector<float>>;

Rows widen(std::span<const float> values);

// x [num_tokens, in_features] times the transposed weight: [num_tokens, out_features].
Rows project(std::span<const double> x, std::span<const float> weight, int in_features);

// 1 / sqrt(mean of squares + eps) of every row of `width` values.
Rows inverse_rms(std::span<const double> x, int width, double eps);
// x * inverse_rms, times the weight unless that is empty.
Rows rms_norm(std::span<const double> x, std::span<const float> weight, int width, double eps);

// The rotary embedding of [num_tokens, num_heads, head_dim]; row t is at first_position + t. The
// angle is a float product of floats, its cosine and sine are exact.
Rows rotate(std::span<const double> x, const RopeGeometry& rope, int num_heads,
            int first_position = 0);

// Where key `key_position` is visible to query `query_position`.
bool sees(const LayerGeometry& layer, int query_position, int key_position);

// Causal attention with scale 1. K and V hold positions 0 .. num_keys - 1, the queries are the last
// num_queries of these. Returns [num_queries, num_q_heads, head_dim].
Rows attend(std::span<const double> q, std::span<const double> k, std::span<const double> v,
            const LayerGeometry& layer);

struct Projections {
  Rows raw_q, raw_k, raw_v;  // before any norm
  Rows q, k, v;              // normed, q and k rotated too
};

// Of x [num_tokens, hidden_size], what the layer's input norm gave; the first token is at
// first_position. A layer that reads another one's cache has no k and v.
Projections project_qkv(std::span<const double> x, const LayerWeights& weights,
                        const Gemma4Geometry& model, int layer_idx, int first_position = 0);

struct LayerAttention : Projections {
  Rows out;       // [num_tokens, num_q_heads * head_dim], before o_proj
  Rows attn_out;  // [num_tokens, hidden_size], after o_proj
};

// Self-attention of a whole sequence from position 0, in a layer with a cache of its own. `attn_in`
// [num_tokens, hidden_size] is what the layer's input norm gave.
LayerAttention layer_attention(std::span<const float> attn_in, const LayerWeights& weights,
                               const Gemma4Geometry& model, int layer_idx);

}  // namespace attune::oracle
