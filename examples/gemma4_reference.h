// Attention of one query token and head of a Gemma 4 layer, in double and straight from the
// formula: what the example is judged by. Positions are rows of the raw projections. Queries, keys
// and values are rounded to bf16 after their norms, as caches hold them: random scores are large,
// and the rounding would be most of the difference.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/gemma4_geometry.h"
#include "step.h"

// Raw projections of all positions, bf16 [position, heads * head_dim], and the norms' weights.
struct Gemma4Inputs {
  std::vector<std::uint16_t> q, k, v;  // v is empty where V is made of the K projection
  std::vector<std::uint16_t> q_norm, k_norm;
};

// A head's numbers over their root mean square, times the weight unless that is NULL.
inline std::vector<double> gemma4_normed(const std::uint16_t* from, const std::uint16_t* weight,
                                         int head_dim, double eps) {
  std::vector<double> head(from, from + head_dim);
  double sum = 0;
  for (int d = 0; d < head_dim; ++d) {
    head[d] = step_to_float(from[d]);
    sum += head[d] * head[d];
  }
  const double factor = 1 / std::sqrt(sum / head_dim + eps);
  for (int d = 0; d < head_dim; ++d) {
    head[d] *= factor * (weight != nullptr ? step_to_float(weight[d]) : 1.0f);
  }
  return head;
}

inline void gemma4_rotate(std::vector<double>* head, const attune::RopeGeometry& rope,
                          int position) {
  const int half = static_cast<int>(head->size()) / 2;
  for (int i = 0; i < rope.num_pairs; ++i) {
    const double angle = position * static_cast<double>(rope.inverse_frequency(i));
    const double x = (*head)[i], y = (*head)[i + half];
    (*head)[i] = x * std::cos(angle) - y * std::sin(angle);
    (*head)[i + half] = y * std::cos(angle) + x * std::sin(angle);
  }
}

inline void gemma4_round(std::vector<double>* head) {
  for (double& x : *head) x = step_to_float(step_to_bf16(static_cast<float>(x)));
}

// The layer's output [head_dim] for the query at `position`.
inline std::vector<double> gemma4_attention_row(const attune::LayerGeometry& layer, double eps,
                                                const Gemma4Inputs& inputs, int position,
                                                int q_head) {
  const int dim = layer.head_dim;
  const auto head_of = [&](const std::vector<std::uint16_t>& rows, int row, int num_heads,
                           int head) {
    return &rows[(std::size_t{1} * row * num_heads + head) * dim];
  };
  const int kv_head = q_head / layer.group_size();
  std::vector<double> query = gemma4_normed(head_of(inputs.q, position, layer.num_q_heads, q_head),
                                            inputs.q_norm.data(), dim, eps);
  gemma4_rotate(&query, layer.rope, position);
  gemma4_round(&query);

  const int begin = layer.window > 0 ? std::max(position + 1 - layer.window, 0) : 0;
  std::vector<double> sums(dim, 0.0);
  double maximum = -std::numeric_limits<double>::infinity(), total = 0;
  for (int p = begin; p <= position; ++p) {  // online softmax
    const std::uint16_t* raw_k = head_of(inputs.k, p, layer.num_kv_heads, kv_head);
    std::vector<double> key = gemma4_normed(raw_k, inputs.k_norm.data(), dim, eps);
    gemma4_rotate(&key, layer.rope, p);
    gemma4_round(&key);
    const std::uint16_t* raw_v =
        inputs.v.empty() ? raw_k : head_of(inputs.v, p, layer.num_kv_heads, kv_head);
    std::vector<double> value = gemma4_normed(raw_v, nullptr, dim, eps);  // without a weight
    gemma4_round(&value);
    double score = 0;
    for (int d = 0; d < dim; ++d) score += query[d] * key[d];
    const double rescale = score > maximum ? std::exp(maximum - score) : 1.0;
    maximum = std::max(maximum, score);
    const double weight = std::exp(score - maximum);
    total = total * rescale + weight;
    for (int d = 0; d < dim; ++d) sums[d] = sums[d] * rescale + weight * value[d];
  }
  for (double& sum : sums) sum /= total;
  return sums;
}

// Relative L2 error of a result row of bf16.
inline double gemma4_row_error(const std::uint16_t* got, const std::vector<double>& expected) {
  double error = 0, norm = 0;
  for (std::size_t d = 0; d < expected.size(); ++d) {
    const double difference = step_to_float(got[d]) - expected[d];
    error += difference * difference;
    norm += expected[d] * expected[d];
  }
  return std::sqrt(error / norm);
}
