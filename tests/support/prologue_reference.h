// The prologue in double, from raw projections to the rows of q, K and V, and where a cache of any
// layout keeps them: what prologue.cuh is judged by. Straight from the formulas and from the
// description of the layouts in templates/config.h, with nothing of the kernel's arithmetic.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "templates/config.h"
#include "templates/params.h"

namespace attune {

inline double value_of_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Half the distance between bf16 values around x.
inline double half_ulp_of_bf16(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, std::max(exponent, -125) - 9);
}

// Rounded once, to nearest even.
inline std::uint16_t bf16_of(double x) {
  const double ulp = 2 * half_ulp_of_bf16(x);
  const auto rounded = static_cast<float>(std::nearbyint(x / ulp) * ulp);
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded) >> 16);
}

// x / sqrt(mean of squares + eps), times the weight unless that is empty.
inline std::vector<double> reference_norm(std::span<const std::uint16_t> raw,
                                          std::span<const double> weight, double eps) {
  double sum = 0;
  for (const std::uint16_t x : raw) sum += value_of_bf16(x) * value_of_bf16(x);
  const double scale = 1 / std::sqrt(sum / static_cast<double>(raw.size()) + eps);
  std::vector<double> row;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    row.push_back(value_of_bf16(raw[i]) * scale * (weight.empty() ? 1 : weight[i]));
  }
  return row;
}

// Turns the pairs (i, i + head_dim / 2). The angle is a float product of floats, its cosine and
// sine are exact.
inline std::vector<double> reference_rotation(std::vector<double> row,
                                              std::span<const float> inv_freq, int position) {
  const std::size_t half = row.size() / 2;
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const double angle = static_cast<float>(position) * inv_freq[i];
    const double low = row[i];
    const double high = row[i + half];
    row[i] = low * std::cos(angle) - high * std::sin(angle);
    row[i + half] = high * std::cos(angle) + low * std::sin(angle);
  }
  return row;
}

// The head dimensions in the order of a unified row: those that rotate, then the others; V has the
// others in front.
inline std::vector<int> unified_order(bool rotated_first) {
  std::vector<int> rotated;
  std::vector<int> others;
  for (int dim = 0; dim < kUnifiedHeadDim; ++dim) {
    (dim % (kUnifiedHeadDim / 2) < kUnifiedRotated / 2 ? rotated : others).push_back(dim);
  }
  std::vector<int> order = rotated_first ? rotated : others;
  const std::vector<int>& rest = rotated_first ? others : rotated;
  order.insert(order.end(), rest.begin(), rest.end());
  return order;
}
// Column of a head dimension.
inline std::vector<int> unified_columns(bool rotated_first) {
  const std::vector<int> order = unified_order(rotated_first);
  std::vector<int> columns(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) columns[order[i]] = static_cast<int>(i);
  return columns;
}

// Where a cache keeps K and V of a position, in elements from the start of its buffers.
class CacheMap {
 public:
  // Of `strides` the fields about the cache count.
  CacheMap(KvLayout layout, const PrologueParams& strides, std::vector<int> block_table)
      : layout_(layout), params_(strides), block_table_(std::move(block_table)) {}

  // nullopt: a unified row has this dimension of K as V times K's norm weight.
  std::optional<int64> key(int sequence, int head, int position, int dim) const {
    const int64 row = row_at(sequence, head, position, params_.k_cache_batch_stride,
                             params_.k_cache_token_stride, params_.k_cache_head_stride);
    if (!is_unified(layout_)) return row + dim;
    if (query_columns_[dim] >= kUnifiedRotated) return std::nullopt;
    return row + query_columns_[dim];
  }
  // In the buffer of V, or of K where the layout is unified.
  int64 value(int sequence, int head, int position, int dim) const {
    if (is_unified(layout_)) {
      return row_at(sequence, head, position, params_.k_cache_batch_stride,
                    params_.k_cache_token_stride, params_.k_cache_head_stride) +
             kUnifiedRotated + value_columns_[dim];
    }
    return row_at(sequence, head, position, params_.v_cache_batch_stride,
                  params_.v_cache_token_stride, params_.v_cache_head_stride) +
           dim;
  }

 private:
  int64 row_at(int sequence, int head, int position, int64 batch_stride, int64 token_stride,
               int64 head_stride) const {
    if (is_paged(layout_)) {
      const int page_size = 1 << params_.page_shift;
      const int page = block_table_[sequence * params_.block_table_stride + position / page_size];
      return page * batch_stride + position % page_size * token_stride + head * head_stride;
    }
    const int row = layout_ == KvLayout::kRing ? position % params_.ring_capacity : position;
    return sequence * batch_stride + row * token_stride + head * head_stride;
  }

  KvLayout layout_;
  PrologueParams params_;
  std::vector<int> block_table_;
  std::vector<int> query_columns_ = unified_columns(true);
  std::vector<int> value_columns_ = unified_columns(false);
};

// K and V of one position and head as a cache has them, in head dimensions' own order.
struct CachedRow {
  std::vector<double> k;
  std::vector<double> v;
};
// `k_cache` and `v_cache` give the bits at a place of the map. A unified layout needs no v_cache,
// and it alone needs k_weight.
template <typename BitsAt>
CachedRow read_cached_row(const CacheMap& map, KvLayout layout, int head_dim,
                          std::span<const float> k_weight, int sequence, int head, int position,
                          const BitsAt& k_cache, const BitsAt& v_cache) {
  CachedRow row;
  for (int dim = 0; dim < head_dim; ++dim) {
    const int64 v_at = map.value(sequence, head, position, dim);
    const double v = value_of_bf16(is_unified(layout) ? k_cache(v_at) : v_cache(v_at));
    const auto k_at = map.key(sequence, head, position, dim);
    row.v.push_back(v);
    row.k.push_back(k_at ? value_of_bf16(k_cache(*k_at)) : v * k_weight[dim]);
  }
  return row;
}

}  // namespace attune
