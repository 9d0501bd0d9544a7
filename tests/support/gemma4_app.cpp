#include "tests/support/gemma4_app.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "tuner/reference.h"

namespace attune {
namespace {

constexpr float kWild = 1000;

// About normal with a variance of 1, from a counter (splitmix64: Steele, Lea, Flood, 2014).
float noise(std::uint64_t seed, std::uint64_t idx) {
  std::uint64_t z = seed * 0xd1342543de82ef95u + idx * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  // The sum of four uniform numbers of 16 bits.
  const auto sum =
      static_cast<std::int64_t>((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
  return static_cast<float>(sum - 2 * 0xffff) * (1.7320508f / 65536.0f);
}

std::vector<std::uint16_t> norm_weights(int head_dim, std::uint64_t seed) {
  // Normed rows without weights have scores with a standard deviation of sqrt(head_dim).
  const float scale = std::sqrt(1.5f / std::sqrt(static_cast<float>(head_dim)));
  std::vector<std::uint16_t> weights;
  for (int i = 0; i < head_dim; ++i) {
    const float factor = 1 + 0.2f * noise(seed, static_cast<std::uint64_t>(i));
    weights.push_back(float_to_bf16(scale * factor));
  }
  return weights;
}

oracle::Rows widen(const std::vector<std::uint16_t>& bf16) {
  oracle::Rows wide;
  for (const std::uint16_t bits : bf16) wide.push_back(bf16_to_float(bits));
  return wide;
}

std::vector<float> floats(const std::vector<std::uint16_t>& bf16) {
  std::vector<float> wide;
  for (const std::uint16_t bits : bf16) wide.push_back(bf16_to_float(bits));
  return wide;
}

void append(oracle::Rows* to, const oracle::Rows& row) {
  to->insert(to->end(), row.begin(), row.end());
}

}  // namespace

AppModel::AppModel(Gemma4Geometry model) : geometry(std::move(model)) {
  for (int idx = 0; idx < num_layers(); ++idx) {
    const auto seed = static_cast<std::uint64_t>(2 * idx);
    const int head_dim = layer(idx).head_dim;
    q_norm.push_back(norm_weights(head_dim, seed));
    k_norm.push_back(layer(idx).owns_cache(idx) ? norm_weights(head_dim, seed + 1)
                                                : std::vector<std::uint16_t>());
  }
}

void AppModel::set_norm_weights(Gemma4Attention& attention) const {
  for (int idx = 0; idx < num_layers(); ++idx) {
    const auto at = static_cast<std::size_t>(idx);
    attention.set_norm_weights(idx, q_norm[at], k_norm[at]);
  }
}

std::vector<std::uint16_t> AppModel::raw(int layer_idx, Projection projection, Token token) const {
  if (given) return given(layer_idx, projection, token);
  const LayerGeometry& of = layer(layer_idx);
  const int num_heads = projection == Projection::kQ ? of.num_q_heads : of.num_kv_heads;
  const int size = num_heads * of.head_dim;
  const auto which = static_cast<std::uint64_t>(projection);
  const std::uint64_t seed =
      ((std::uint64_t{token.id} << 8 | static_cast<std::uint64_t>(layer_idx)) << 2) + which + 1000;
  std::vector<std::uint16_t> values;
  values.reserve(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) {
    const bool is_wild = token.is_wild && projection != Projection::kQ;
    values.push_back(float_to_bf16(is_wild ? kWild : noise(seed, static_cast<std::uint64_t>(i))));
  }
  return values;
}

void AppSequence::push(Token token) {
  const int position = length();
  tokens_.push_back(token);
  for (int idx = 0; idx < model_->num_layers(); ++idx) {
    const LayerGeometry& layer = model_->layer(idx);
    if (!layer.owns_cache(idx)) continue;
    const auto at = static_cast<std::size_t>(idx);
    const double eps = model_->geometry.rms_norm_eps;
    const oracle::Rows k = widen(model_->raw(idx, Projection::kK, token));
    const oracle::Rows v = layer.k_eq_v ? k : widen(model_->raw(idx, Projection::kV, token));
    const oracle::Rows normed =
        oracle::rms_norm(k, floats(model_->k_norm[at]), layer.head_dim, eps);
    append(&rows_[at].k, oracle::rotate(normed, layer.rope, layer.num_kv_heads, position));
    append(&rows_[at].v, oracle::rms_norm(v, {}, layer.head_dim, eps));
  }
}

void AppSequence::cut(int length) {
  tokens_.resize(static_cast<std::size_t>(length));
  for (int idx = 0; idx < model_->num_layers(); ++idx) {
    const LayerGeometry& layer = model_->layer(idx);
    if (!layer.owns_cache(idx)) continue;
    const auto size = static_cast<std::size_t>(length * layer.num_kv_heads * layer.head_dim);
    rows_[static_cast<std::size_t>(idx)].k.resize(size);
    rows_[static_cast<std::size_t>(idx)].v.resize(size);
  }
}

AppSequence::Seen AppSequence::seen(int layer_idx, int position) const {
  const LayerGeometry& layer = model_->layer(layer_idx);
  const auto at = static_cast<std::size_t>(layer_idx);
  const Token token = tokens_.at(static_cast<std::size_t>(position));
  const oracle::Rows raw = widen(model_->raw(layer_idx, Projection::kQ, token));
  const oracle::Rows normed = oracle::rms_norm(raw, floats(model_->q_norm[at]), layer.head_dim,
                                               model_->geometry.rms_norm_eps);
  const CacheRows& cache = rows_[static_cast<std::size_t>(layer.kv_layer)];
  const bool is_sliding = layer.kind == LayerKind::kSliding;
  const int first = is_sliding ? std::max(0, position + 1 - layer.window) : 0;
  const auto row = static_cast<std::size_t>(layer.num_kv_heads * layer.head_dim);
  const std::size_t begin = static_cast<std::size_t>(first) * row;
  const std::size_t count = static_cast<std::size_t>(position + 1 - first) * row;
  return {oracle::rotate(normed, layer.rope, layer.num_q_heads, position),
          std::span(cache.k).subspan(begin, count), std::span(cache.v).subspan(begin, count)};
}

oracle::Rows AppSequence::expected(int layer, int position) const {
  const Seen all = seen(layer, position);
  return oracle::attend(all.q, all.k, all.v, model_->layer(layer));
}

oracle::Rows AppSequence::expected_lse(int layer_idx, int position) const {
  const LayerGeometry& layer = model_->layer(layer_idx);
  const Seen all = seen(layer_idx, position);
  const auto dim = static_cast<std::size_t>(layer.head_dim);
  const auto row = static_cast<std::size_t>(layer.num_kv_heads) * dim;
  oracle::Rows lse;
  for (int head = 0; head < layer.num_q_heads; ++head) {
    const double* const q = &all.q[static_cast<std::size_t>(head) * dim];
    const auto kv_head = static_cast<std::size_t>(head / layer.group_size());
    double sum = 0;  // scores are small: normed rows with small weights
    for (std::size_t k = kv_head * dim; k < all.k.size(); k += row) {
      sum += std::exp(std::inner_product(q, q + dim, &all.k[k], 0.0));
    }
    lse.push_back(std::log(sum));
  }
  return lse;
}

StepBuffers::StepBuffers(Device& device, const AppModel& model, int batch, int max_tokens,
                         Projections projections)
    : device_(device),
      model_(model),
      batch_(batch),
      max_tokens_(max_tokens),
      is_fused_(projections == Projections::kFused) {
  constexpr std::int64_t kGap = 24;  // elements between fused rows
  const std::int64_t tokens = std::int64_t{1} * batch * max_tokens;
  for (int idx = 0; idx < model.num_layers(); ++idx) {
    const LayerGeometry& layer = model.layer(idx);
    LayerBuffers& made = layers_.emplace_back();
    made.q_size = std::int64_t{1} * layer.num_q_heads * layer.head_dim;
    made.kv_size = std::int64_t{1} * layer.num_kv_heads * layer.head_dim;
    made.num_kv = !layer.owns_cache(idx) ? 0 : layer.k_eq_v ? 1 : 2;
    const std::int64_t gap = is_fused_ ? kGap : 0;
    made.raw_stride = made.q_size + made.num_kv * made.kv_size + gap;
    made.out_stride = made.q_size + gap;
    made.raw = device.allocate(static_cast<std::size_t>(tokens * made.raw_stride) * 2);
    made.out = device.allocate(static_cast<std::size_t>(tokens * made.out_stride) * 2);
    made.num_q_heads = layer.num_q_heads;
    made.lse = device.allocate(static_cast<std::size_t>(tokens * layer.num_q_heads) * 4);
  }
}

// Elements in front of Q (0), K (1) or V (2).
std::int64_t StepBuffers::offset(const LayerBuffers& layer, int projection) const {
  const std::int64_t rows = is_fused_ ? 1 : std::int64_t{1} * batch_ * max_tokens_;
  return projection == 0 ? 0 : rows * (layer.q_size + (projection - 1) * layer.kv_size);
}

void StepBuffers::upload(const std::vector<std::vector<Token>>& tokens, StreamHandle stream) {
  num_tokens_ = static_cast<int>(tokens.front().size());
  for (int idx = 0; idx < model_.num_layers(); ++idx) {
    const LayerBuffers& layer = layers_[static_cast<std::size_t>(idx)];
    std::vector<std::uint16_t> raw(layer.raw.bytes() / 2, 0xffff);
    std::int64_t row = 0;
    for (const auto& sequence : tokens) {
      for (const Token token : sequence) {
        for (int which = 0; which <= layer.num_kv; ++which) {
          const auto values = model_.raw(idx, static_cast<Projection>(which), token);
          const std::int64_t dense = which == 0 ? layer.q_size : layer.kv_size;
          const std::int64_t stride = is_fused_ ? layer.raw_stride : dense;
          std::copy(values.begin(), values.end(),
                    raw.begin() + offset(layer, which) + row * stride);
        }
        ++row;
      }
    }
    device_.copy_to_device(layer.raw.ptr(), std::as_bytes(std::span(raw)), stream);
    device_.fill_bytes(layer.out.ptr(), 0xff, layer.out.bytes(), stream);
    device_.fill_bytes(layer.lse.ptr(), 0xff, layer.lse.bytes(), stream);
  }
}

Gemma4LayerArgs StepBuffers::args(int layer_idx) const {
  const LayerBuffers& layer = layers_[static_cast<std::size_t>(layer_idx)];
  const auto address = [&](int projection) {
    return layer.raw.ptr() + 2 * static_cast<std::uint64_t>(offset(layer, projection));
  };
  Gemma4LayerArgs args;
  args.q = address(0);
  args.k = layer.num_kv > 0 ? address(1) : 0;
  args.v = layer.num_kv > 1 ? address(2) : 0;
  args.out = layer.out.ptr();
  args.lse = layer.lse.ptr();
  if (is_fused_) {
    args.q_token_stride = layer.raw_stride;
    args.k_token_stride = layer.num_kv > 0 ? layer.raw_stride : 0;
    args.v_token_stride = layer.num_kv > 1 ? layer.raw_stride : 0;
    args.out_token_stride = layer.out_stride;
  }
  return args;
}

std::vector<std::uint16_t> StepBuffers::output(int layer_idx, StreamHandle stream) const {
  const LayerBuffers& layer = layers_[static_cast<std::size_t>(layer_idx)];
  std::vector<std::uint16_t> rows(
      static_cast<std::size_t>(batch_ * num_tokens_ * layer.out_stride));
  device_.copy_to_host(std::as_writable_bytes(std::span(rows)), layer.out.ptr(), stream);
  std::vector<std::uint16_t> dense;
  for (std::int64_t row = 0; row < std::int64_t{1} * batch_ * num_tokens_; ++row) {
    const auto begin = rows.begin() + row * layer.out_stride;
    dense.insert(dense.end(), begin, begin + layer.q_size);
  }
  return dense;
}

std::vector<float> StepBuffers::lse(int layer_idx, StreamHandle stream) const {
  const LayerBuffers& layer = layers_[static_cast<std::size_t>(layer_idx)];
  std::vector<float> values(static_cast<std::size_t>(batch_ * num_tokens_ * layer.num_q_heads));
  device_.copy_to_host(std::as_writable_bytes(std::span(values)), layer.lse.ptr(), stream);
  return values;
}

double lse_error(const std::vector<float>& lse, const AppSequence& sequence, int layer,
                 int batch_idx, int num_tokens, int first, const std::vector<int>& rows) {
  double largest = 0;
  for (const int row : rows) {
    const oracle::Rows right = sequence.expected_lse(layer, first + row);
    const std::size_t begin = static_cast<std::size_t>(batch_idx * num_tokens + row) * right.size();
    for (std::size_t head = 0; head < right.size(); ++head) {
      const double error = std::abs(static_cast<double>(lse[begin + head]) - right[head]);
      largest =
          std::isfinite(error) ? std::max(largest, error) : std::numeric_limits<double>::infinity();
    }
  }
  return largest;
}

double output_error(const std::vector<std::uint16_t>& output, const AppSequence& sequence,
                    int layer, int batch_idx, int num_tokens, int first,
                    const std::vector<int>& rows) {
  std::vector<double> actual, expected;
  for (const int row : rows) {
    const oracle::Rows right = sequence.expected(layer, first + row);
    const std::size_t begin = static_cast<std::size_t>(batch_idx * num_tokens + row) * right.size();
    expected.insert(expected.end(), right.begin(), right.end());
    for (std::size_t i = 0; i < right.size(); ++i) {
      actual.push_back(bf16_to_float(output[begin + i]));
    }
  }
  for (const std::uint16_t bits : output) {
    if (!std::isfinite(bf16_to_float(bits))) return std::numeric_limits<double>::infinity();
  }
  return relative_l2(actual, expected);
}

}  // namespace attune
