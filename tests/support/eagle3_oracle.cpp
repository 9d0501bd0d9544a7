#include "tests/support/eagle3_oracle.h"

#include <cmath>
#include <utility>

namespace attune::oracle {
namespace {

// Rows of `a` and of `b`, of `width` values each, side by side.
Rows joined(std::span<const double> a, std::span<const double> b, int width) {
  const auto size = static_cast<std::size_t>(width);
  Rows rows;
  for (std::size_t begin = 0; begin < a.size(); begin += size) {
    for (const auto& half : {a, b}) {
      const auto row = half.subspan(begin, size);
      rows.insert(rows.end(), row.begin(), row.end());
    }
  }
  return rows;
}

void add(Rows* to, std::span<const double> values) {
  for (std::size_t i = 0; i < to->size(); ++i) (*to)[i] += values[i];
}

}  // namespace

Rows taps_of(const ModelOracle::Step& step, const Eagle3Config& config) {
  const auto size = static_cast<std::size_t>(config.target_hidden_size);
  Rows taps;
  for (std::size_t begin = 0; begin < step.hidden[0].size(); begin += size) {
    for (const int tap : config.taps) {
      const auto row =
          std::span(step.hidden.at(static_cast<std::size_t>(tap))).subspan(begin, size);
      taps.insert(taps.end(), row.begin(), row.end());
    }
  }
  return taps;
}

Eagle3Oracle::Eagle3Oracle(Eagle3Config config, Eagle3Floats weights)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      layer_{.kind = LayerKind::kGlobal,
             .num_q_heads = config_.num_q_heads,
             .num_kv_heads = config_.num_kv_heads,
             .head_dim = config_.head_dim,
             .rope = config_.rope()} {}

Rows Eagle3Oracle::fuse(std::span<const double> taps) const {
  return project(taps, weights_.fc, config_.num_taps() * config_.target_hidden_size);
}

Rows Eagle3Oracle::attention(std::span<const double> x) {
  const int width = 2 * config_.hidden_size;
  Rows q = rotate(project(x, weights_.q_proj, width), layer_.rope, layer_.num_q_heads, length_);
  for (double& value : q) value /= std::sqrt(static_cast<double>(layer_.head_dim));
  const Rows k =
      rotate(project(x, weights_.k_proj, width), layer_.rope, layer_.num_kv_heads, length_);
  const Rows v = project(x, weights_.v_proj, width);
  k_.insert(k_.end(), k.begin(), k.end());
  v_.insert(v_.end(), v.begin(), v.end());
  return project(attend(q, k_, v_, layer_), weights_.o_proj, layer_.num_q_heads * layer_.head_dim);
}

Eagle3Oracle::Step Eagle3Oracle::push(std::span<const int> tokens,
                                      std::span<const double> features) {
  const int hidden = config_.hidden_size;
  const double eps = config_.rms_norm_eps;
  Rows embedding;
  for (const int token : tokens) {
    const auto begin = static_cast<std::size_t>(token) * static_cast<std::size_t>(hidden);
    const auto row =
        std::span(weights_.embed_tokens).subspan(begin, static_cast<std::size_t>(hidden));
    embedding.insert(embedding.end(), row.begin(), row.end());
  }
  const Rows normed = rms_norm(features, weights_.hidden_norm, hidden, eps);
  const Rows x = joined(rms_norm(embedding, weights_.input_norm, hidden, eps), normed, hidden);
  Step step;
  step.g = config_.norm_before_residual ? normed : Rows(features.begin(), features.end());
  add(&step.g, attention(x));
  add(&step.g, gated_mlp(rms_norm(step.g, weights_.post_attention_norm, hidden, eps),
                         weights_.gate_proj, weights_.up_proj, weights_.down_proj, hidden, silu));
  length_ += static_cast<int>(tokens.size());
  step.logits = project(rms_norm(step.g, weights_.norm, hidden, eps), weights_.lm_head, hidden);
  return step;
}

void Eagle3Oracle::cut(int length) {
  const auto size = static_cast<std::size_t>(length) *
                    static_cast<std::size_t>(layer_.num_kv_heads * layer_.head_dim);
  k_.resize(size);
  v_.resize(size);
  length_ = length;
}

}  // namespace attune::oracle
