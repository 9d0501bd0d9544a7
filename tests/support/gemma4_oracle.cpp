#include "tests/support/gemma4_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attune::oracle {
namespace {

double dot(const double* a, const double* b, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

Rows widen(std::span<const float> values) { return Rows(values.begin(), values.end()); }

Rows project(std::span<const double> x, std::span<const float> weight, int in_features) {
  const Rows wide = widen(weight);
  const std::size_t width = static_cast<std::size_t>(in_features);
  Rows y;
  y.reserve(x.size() / width * (wide.size() / width));
  for (std::size_t token = 0; token < x.size(); token += width) {
    for (std::size_t out = 0; out < wide.size(); out += width) {
      y.push_back(dot(&x[token], &wide[out], in_features));
    }
  }
  return y;
}

Rows inverse_rms(std::span<const double> x, int width, double eps) {
  Rows factors;
  for (std::size_t row = 0; row < x.size(); row += static_cast<std::size_t>(width)) {
    factors.push_back(1 / std::sqrt(dot(&x[row], &x[row], width) / width + eps));
  }
  return factors;
}

Rows rms_norm(std::span<const double> x, std::span<const float> weight, int width, double eps) {
  const Rows factors = inverse_rms(x, width, eps);
  const std::size_t row_size = static_cast<std::size_t>(width);
  Rows y(x.begin(), x.end());
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] *= factors[i / row_size] * (weight.empty() ? 1.0 : weight[i % row_size]);
  }
  return y;
}

Rows rotate(std::span<const double> x, const RopeGeometry& rope, int num_heads,
            int first_position) {
  const std::size_t half = static_cast<std::size_t>(rope.head_dim / 2);
  const std::size_t token_size = 2 * half * static_cast<std::size_t>(num_heads);
  Rows y(x.begin(), x.end());
  for (std::size_t row = 0; row < y.size(); row += 2 * half) {
    const int position = first_position + static_cast<int>(row / token_size);
    for (int i = 0; i < rope.num_pairs; ++i) {
      const float angle = static_cast<float>(position) * rope.inverse_frequency(i);
      const double cosine = std::cos(static_cast<double>(angle));
      const double sine = std::sin(static_cast<double>(angle));
      double& low = y[row + static_cast<std::size_t>(i)];
      double& high = y[row + static_cast<std::size_t>(i) + half];
      const double before = low;
      low = before * cosine - high * sine;
      high = high * cosine + before * sine;
    }
  }
  return y;
}

bool sees(const LayerGeometry& layer, int query_position, int key_position) {
  const int distance = query_position - key_position;
  return distance >= 0 && (layer.kind == LayerKind::kGlobal || distance < layer.window);
}

Rows attend(std::span<const double> q, std::span<const double> k, std::span<const double> v,
            const LayerGeometry& layer) {
  const std::size_t dim = static_cast<std::size_t>(layer.head_dim);
  const std::size_t num_q_heads = static_cast<std::size_t>(layer.num_q_heads);
  const std::size_t num_kv_heads = static_cast<std::size_t>(layer.num_kv_heads);
  const int num_keys = static_cast<int>(k.size() / (num_kv_heads * dim));
  const int num_queries = static_cast<int>(q.size() / (num_q_heads * dim));
  const std::size_t group_size = num_q_heads / num_kv_heads;
  Rows out(q.size(), 0.0);
  for (std::size_t row = 0; row < q.size() / dim; ++row) {
    const int query_position = num_keys - num_queries + static_cast<int>(row / num_q_heads);
    const std::size_t kv_head = row % num_q_heads / group_size;
    const auto at = [&](int key) {
      return (static_cast<std::size_t>(key) * num_kv_heads + kv_head) * dim;
    };
    Rows scores(static_cast<std::size_t>(num_keys), -std::numeric_limits<double>::infinity());
    for (int key = 0; key < num_keys; ++key) {
      if (!sees(layer, query_position, key)) continue;
      scores[static_cast<std::size_t>(key)] = dot(&q[row * dim], &k[at(key)], layer.head_dim);
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - largest);
    for (int key = 0; key < num_keys; ++key) {
      const double weight = scores[static_cast<std::size_t>(key)] / sum;
      for (std::size_t d = 0; d < dim; ++d) out[row * dim + d] += weight * v[at(key) + d];
    }
  }
  return out;
}

Projections project_qkv(std::span<const double> x, const LayerWeights& weights,
                        const Gemma4Geometry& model, int layer_idx, int first_position) {
  const LayerGeometry& layer = model.layers.at(static_cast<std::size_t>(layer_idx));
  const double eps = model.rms_norm_eps;
  Projections p;
  p.raw_q = project(x, weights.q_proj, model.hidden_size);
  p.q = rotate(rms_norm(p.raw_q, weights.q_norm, layer.head_dim, eps), layer.rope,
               layer.num_q_heads, first_position);
  if (!layer.owns_cache(layer_idx)) return p;
  p.raw_k = project(x, weights.k_proj, model.hidden_size);
  p.raw_v = layer.k_eq_v ? p.raw_k : project(x, weights.v_proj, model.hidden_size);
  p.k = rotate(rms_norm(p.raw_k, weights.k_norm, layer.head_dim, eps), layer.rope,
               layer.num_kv_heads, first_position);
  p.v = rms_norm(p.raw_v, {}, layer.head_dim, eps);
  return p;
}

LayerAttention layer_attention(std::span<const float> attn_in, const LayerWeights& weights,
                               const Gemma4Geometry& model, int layer_idx) {
  const LayerGeometry& layer = model.layers.at(static_cast<std::size_t>(layer_idx));
  LayerAttention a{project_qkv(widen(attn_in), weights, model, layer_idx), {}, {}};
  a.out = attend(a.q, a.k, a.v, layer);
  a.attn_out = project(a.out, weights.o_proj, layer.num_q_heads * layer.head_dim);
  return a;
}

}  // namespace attune::oracle
