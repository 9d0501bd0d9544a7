// The error of separate and of unified K/V rows against attention in double, from the same raw
// projections: what an emulation of bf16 in numpy gives, on kernels.
#pragma once

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "jit/device.h"
#include "runtime/gemma4_attention.h"
#include "tests/support/gemma4_oracle.h"
#include "tuner/parallel.h"
#include "tuner/reference.h"

namespace attune {

// One global layer: `num_q_heads` query heads on one KV head.
inline Gemma4Geometry one_global_layer(int num_q_heads, int max_positions) {
  LayerGeometry layer;
  layer.kind = LayerKind::kGlobal;
  layer.num_q_heads = num_q_heads;
  layer.num_kv_heads = 1;
  layer.head_dim = 512;
  layer.rope = {.theta = 1e6, .num_pairs = 64, .head_dim = 512};
  layer.k_eq_v = true;
  return {.hidden_size = 1, .max_positions = max_positions, .layers = {layer}};
}

// Raw projections and norm weights: bf16, keys with channels of different scale (lognormal), as
// trained models have them.
struct RawSequence {
  RawSequence(const LayerGeometry& of, int tokens, int queries, bool weights_vary)
      : layer(of), num_tokens(tokens), num_queries(queries) {
    std::mt19937 random(20261130);
    std::normal_distribution<float> normal;
    const auto head_dim = static_cast<std::size_t>(layer.head_dim);
    for (std::size_t d = 0; d < head_dim; ++d) {
      scales.push_back(std::exp(0.5f * normal(random)));
      const auto weight = [&] {
        const float value = weights_vary ? std::exp(-0.35f + normal(random)) : 1.0f;
        return float_to_bf16(std::min(std::max(value, 0.05f), 10.0f));
      };
      k_norm.push_back(weight());
      q_norm.push_back(weight());
    }
    // Scores of standard deviation 3 or so, whatever the weights are.
    double sum = 0;
    for (std::size_t d = 0; d < head_dim; ++d) {
      const double w = bf16_to_float(q_norm[d]) * bf16_to_float(k_norm[d]);
      sum += w * w;
    }
    const float to_deviation = static_cast<float>(3.0 / std::sqrt(sum));
    for (auto& w : q_norm) w = float_to_bf16(bf16_to_float(w) * to_deviation);
    for (std::size_t i = 0; i < tokens * head_dim; ++i) {
      k.push_back(float_to_bf16(normal(random) * scales[i % head_dim]));
    }
    for (std::size_t i = 0; i < queries * of.num_q_heads * head_dim; ++i) {
      q.push_back(float_to_bf16(normal(random)));
    }
  }

  // What attention of the last tokens contracts: queries [num_queries, num_q_heads, head_dim], keys
  // and values [num_tokens, head_dim].
  struct Rows {
    std::vector<double> q, k, v;
  };
  // Nothing is rounded.
  Rows exact_rows(double eps) const {
    const int head_dim = layer.head_dim;
    const auto raw_k = widened(k);
    return {oracle::rotate(oracle::rms_norm(widened(q), weights(q_norm), head_dim, eps), layer.rope,
                           layer.num_q_heads, num_tokens - num_queries),
            oracle::rotate(oracle::rms_norm(raw_k, weights(k_norm), head_dim, eps), layer.rope, 1),
            oracle::rms_norm(raw_k, {}, head_dim, eps)};
  }
  // As a cache and a prologue hold them: rounded to bf16 once, and of unified rows the key's
  // un-rotated part is the value, its weight in the query.
  Rows stored_rows(bool unified, double eps) const {
    Rows rows = exact_rows(eps);
    const auto head_dim = static_cast<std::size_t>(layer.head_dim);
    const auto is_rotated = [&](std::size_t i) {
      return i % (head_dim / 2) < static_cast<std::size_t>(layer.rope.num_pairs);
    };
    const std::vector<float> weight = weights(k_norm);
    for (std::size_t i = 0; unified && i < rows.q.size(); ++i) {
      if (!is_rotated(i)) rows.q[i] *= weight[i % head_dim];
    }
    for (std::size_t i = 0; unified && i < rows.k.size(); ++i) {
      if (!is_rotated(i)) rows.k[i] = rows.v[i];
    }
    for (std::vector<double>* one : {&rows.q, &rows.k, &rows.v}) {
      for (double& x : *one) x = bf16_to_float(float_to_bf16(static_cast<float>(x)));
    }
    return rows;
  }

  // Attention in double: [num_queries, num_q_heads, head_dim].
  std::vector<double> attend(const Rows& rows) const {
    const int head_dim = layer.head_dim;
    std::vector<double> out(rows.q.size(), 0.0);
    parallel_for(rows.q.size() / head_dim, 0, [&](std::size_t row) {
      const int position = num_tokens - num_queries + static_cast<int>(row) / layer.num_q_heads;
      const double* query = &rows.q[row * head_dim];
      std::vector<double> scores(static_cast<std::size_t>(position) + 1);
      double highest = -1e300;
      for (int j = 0; j <= position; ++j) {
        constexpr int kLanes = 8;  // sums that a compiler can keep in a vector
        double lanes[kLanes] = {};
        const double* key = &rows.k[std::size_t{1} * j * head_dim];
        for (int d = 0; d < head_dim; d += kLanes) {
          for (int i = 0; i < kLanes; ++i) lanes[i] += query[d + i] * key[d + i];
        }
        for (const double lane : lanes) scores[j] += lane;
        highest = std::max(highest, scores[j]);
      }
      double sum = 0;
      double* to = &out[row * head_dim];
      for (int j = 0; j <= position; ++j) {
        const double weight = std::exp(scores[j] - highest);
        sum += weight;
        const double* value = &rows.v[std::size_t{1} * j * head_dim];
        for (int d = 0; d < head_dim; ++d) to[d] += weight * value[d];
      }
      for (int d = 0; d < head_dim; ++d) to[d] /= sum;
    });
    return out;
  }

  static std::vector<double> widened(const std::vector<std::uint16_t>& values) {
    std::vector<double> wide;
    wide.reserve(values.size());
    for (const std::uint16_t bits : values) wide.push_back(bf16_to_float(bits));
    return wide;
  }
  static std::vector<float> weights(const std::vector<std::uint16_t>& values) {
    std::vector<float> wide;
    for (const std::uint16_t bits : values) wide.push_back(bf16_to_float(bits));
    return wide;
  }

  LayerGeometry layer;
  int num_tokens, num_queries;
  std::vector<float> scales;
  std::vector<std::uint16_t> k_norm, q_norm, k, q;
};

// Output of a layout: prefill of all but the last tokens, then decode or verify steps of them,
// `tokens_per_step` each.
inline std::vector<double> run_layout(Engine& engine, const RawSequence& raw, KvLayout layout,
                                      int tokens_per_step, int chunk, std::size_t* cache_bytes) {
  Device& device = engine.device();
  Gemma4Attention model(engine, one_global_layer(raw.layer.num_q_heads, raw.num_tokens),
                        {.max_tokens = raw.num_tokens,
                         .max_prefill = chunk,
                         .max_verify = std::max(tokens_per_step, 1),
                         .global_layout = layout});
  model.set_norm_weights(0, raw.q_norm, raw.k_norm);
  Gemma4Session session = model.open_session();
  *cache_bytes = session.cache_bytes();
  const Stream stream = device.create_stream();
  const auto upload = [&](const std::vector<std::uint16_t>& values) {
    DeviceMem mem = device.allocate(values.size() * 2);
    device.copy_to_device(mem.ptr(), std::as_bytes(std::span(values)), stream.get());
    return mem;
  };
  const std::size_t q_token = std::size_t{1} * raw.layer.num_q_heads * raw.layer.head_dim;
  const DeviceMem k = upload(raw.k);
  const DeviceMem q = upload(raw.q);
  // What the queries of the prefill are does not matter.
  DeviceMem noise = device.allocate(chunk * q_token * 2);
  device.fill_bytes(noise.ptr(), 0x3c, noise.bytes(), stream.get());
  DeviceMem out = device.allocate(std::max<std::size_t>(chunk, raw.num_queries) * q_token * 2);
  const auto key_at = [&](int token) { return k.ptr() + token * raw.layer.head_dim * 2ull; };
  const int first = raw.num_tokens - raw.num_queries;
  while (session.length() < first) {
    const int tokens = std::min(chunk, first - session.length());
    session.prefill(0, tokens, {.q = noise.ptr(), .k = key_at(session.length()), .out = out.ptr()},
                    stream.get());
    session.commit(tokens, stream.get());
  }
  while (session.length() < raw.num_tokens) {
    const std::size_t at = (session.length() - first) * q_token * 2;
    const Gemma4LayerArgs args = {
        .q = q.ptr() + at, .k = key_at(session.length()), .out = out.ptr() + at};
    if (tokens_per_step == 1) {
      session.decode(0, args, stream.get());
    } else {
      session.verify(0, tokens_per_step, args, stream.get());
    }
    session.commit(tokens_per_step, stream.get());
  }
  std::vector<std::uint16_t> bits(raw.num_queries * q_token);
  device.copy_to_host(std::as_writable_bytes(std::span(bits)), out.ptr(), stream.get());
  std::vector<double> values;
  for (const std::uint16_t one : bits) values.push_back(bf16_to_float(one));
  return values;
}

// Prints memory and error of both. A kernel adds no more than its own error to that of the rounded
// rows, of which neither form is better on the whole: a few keys decide which one is (0.8 to 1.4
// times the other's, by the sequence).
inline void expect_unified_as_good(Engine& engine, int num_tokens, int num_queries, int num_q_heads,
                                   int chunk, const std::vector<int>& steps) {
  constexpr double kKernelError = 2.5e-3;
  for (const bool weights_vary : {false, true}) {
    const Gemma4Geometry geometry = one_global_layer(num_q_heads, num_tokens);
    const RawSequence raw(geometry.layers[0], num_tokens, num_queries, weights_vary);
    const std::vector<double> expected = raw.attend(raw.exact_rows(geometry.rms_norm_eps));
    const auto error_of_rows = [&](bool unified) {
      return relative_l2(raw.attend(raw.stored_rows(unified, geometry.rms_norm_eps)), expected);
    };
    const double separate_rows = error_of_rows(false);
    const double unified_rows = error_of_rows(true);
    for (const int step : steps) {
      std::size_t separate_bytes = 0, unified_bytes = 0;
      const double separate = relative_l2(
          run_layout(engine, raw, KvLayout::kContiguous, step, chunk, &separate_bytes), expected);
      const double unified = relative_l2(
          run_layout(engine, raw, KvLayout::kUnified, step, chunk, &unified_bytes), expected);
      std::printf(
          "kv %d M %d weights %s: separate %zu bytes %.3e (rows alone %.3e), unified %zu bytes "
          "%.3e (%.3e)\n",
          num_tokens, step, weights_vary ? "lognormal" : "ones", separate_bytes, separate,
          separate_rows, unified_bytes, unified, unified_rows);
      EXPECT_EQ(unified_bytes * 1024, separate_bytes * 640);
      EXPECT_LT(separate, std::hypot(separate_rows, kKernelError));
      EXPECT_LT(unified, std::hypot(unified_rows, kKernelError));
    }
  }
}

}  // namespace attune
