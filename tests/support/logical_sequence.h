// A sequence of queries, keys and values by position, and its cache in any layout on a device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "jit/device.h"
#include "templates/problem.h"
#include "tuner/reference.h"

namespace attune {

// Normal noise that repeats after a prime number of positions: no two tiles or chunks are alike.
class LogicalSequence {
 public:
  static constexpr float kSoftcap = 5.0f;

  explicit LogicalSequence(const Problem& problem, int period = 4093)
      : period_(period),
        head_dim_(problem.head_dim),
        num_kv_heads_(problem.num_kv_heads),
        query_size_(std::size_t{1} * problem.num_q_heads * problem.head_dim),
        row_size_(std::size_t{1} * problem.num_kv_heads * problem.head_dim) {
    queries_ = noise(kQueryPeriod * query_size_, 1);
    keys_ = noise(static_cast<std::size_t>(period) * row_size_, 2);
    values_ = noise(static_cast<std::size_t>(period) * row_size_, 3);
  }

  // [num_q_heads, head_dim]; of a position before the sequence too.
  std::span<const std::uint16_t> query(int position) const {
    const int row = (position % kQueryPeriod + kQueryPeriod) % kQueryPeriod;
    return std::span(queries_).subspan(static_cast<std::size_t>(row) * query_size_, query_size_);
  }
  // [num_kv_heads, columns]: the row of a K buffer, of a V buffer or of unified rows.
  void write_key(int position, KvLayout layout, std::uint16_t* to) const {
    const std::size_t at = static_cast<std::size_t>(position % period_) * row_size_;
    if (!is_unified(layout)) {
      std::copy_n(&keys_[at], row_size_, to);
      return;
    }
    for (int head = 0; head < num_kv_heads_; ++head, to += kUnifiedColumns) {
      const std::size_t first = at + static_cast<std::size_t>(head * head_dim_);
      std::copy_n(&keys_[first], kUnifiedRotated, to);
      std::copy_n(&values_[first], head_dim_, to + kUnifiedRotated);
    }
  }
  void write_value(int position, std::uint16_t* to) const {
    const std::size_t at = static_cast<std::size_t>(position % period_) * row_size_;
    std::copy_n(&values_[at], row_size_, to);
  }
  // Scores have a standard deviation of about 2.
  float sm_scale() const { return 2.0f / std::sqrt(static_cast<float>(head_dim_)); }

 private:
  static constexpr int kQueryPeriod = 61;

  static std::vector<std::uint16_t> noise(std::size_t count, std::uint64_t seed) {
    std::vector<std::uint16_t> data(count);
    std::uint64_t state = seed * 0x9e3779b97f4a7c15ull;
    for (std::uint16_t& value : data) {
      // The sum of four uniform numbers of 16 bits, scaled to a variance of 1.
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      std::uint64_t bits = (state ^ (state >> 29)) * 0xbf58476d1ce4e5b9ull;
      bits ^= bits >> 32;
      const int sum = static_cast<int>((bits & 0xffff) + (bits >> 16 & 0xffff) +
                                       (bits >> 32 & 0xffff) + (bits >> 48));
      value = float_to_bf16(static_cast<float>(sum - 2 * 0xffff) * (1.7320508f / 65536.0f));
    }
    return data;
  }

  int period_;
  int head_dim_;
  int num_kv_heads_;
  std::size_t query_size_, row_size_;
  std::vector<std::uint16_t> queries_, keys_, values_;
};

// The rows of a sequence in a device's memory.
class SequenceCache {
 public:
  // Of the first `length` positions. A ring has `length` rows; hold() says which positions.
  // `sequence` has to outlive it.
  SequenceCache(Device& device, const LogicalSequence& sequence, const Problem& problem, int length)
      : device_(device), sequence_(sequence), problem_(problem), length_(length) {
    chunk_ = is_paged(problem.kv_layout) ? problem.page_size : kRowsPerCopy;
    num_chunks_ = (length - 1) / chunk_ + 1;
    if (is_ring()) chunk_ = length, num_chunks_ = 1;
    columns_ = kv_row_columns(problem.kv_layout, problem.head_dim);
    const std::size_t bytes = std::size_t{1} * num_chunks_ * chunk_elements() * kBytesPerElement;
    k_ = device.allocate(bytes);
    if (!is_unified(problem.kv_layout)) v_ = device.allocate(bytes);
    if (is_paged(problem.kv_layout)) {
      std::vector<int> pages;
      for (int i = 0; i < num_chunks_; ++i) pages.push_back(place_of(i));
      block_table_ = device.allocate(pages.size() * sizeof(int));
      device.copy_to_device(block_table_.ptr(), std::as_bytes(std::span(pages)), nullptr);
    }
    if (is_ring()) return;
    for (int i = 0; i < num_chunks_; ++i) write_chunk(i, i * chunk_);
    device.synchronize(nullptr);
  }

  bool is_ring() const { return problem_.kv_layout == KvLayout::kRing; }

  // Makes a ring hold its length's worth of positions before `end`.
  void hold(int end) {
    write_chunk(0, std::max(0, end - length_));
    device_.synchronize(nullptr);
  }

  void set_params(AttentionParams& params) const {
    params.k = reinterpret_cast<const void*>(k_.ptr());
    params.v = reinterpret_cast<const void*>(v_.ptr());
    params.block_table = reinterpret_cast<const int*>(block_table_.ptr());
    params.block_table_stride = num_chunks_;
    params.k_head_stride = params.v_head_stride = columns_;
    params.k_token_stride = params.v_token_stride =
        std::int64_t{1} * problem_.num_kv_heads * columns_;
    params.k_batch_stride = params.v_batch_stride =
        is_paged(problem_.kv_layout) ? chunk_elements() : num_chunks_ * chunk_elements();
    params.ring_capacity = is_ring() ? length_ : 0;
  }

 private:
  static constexpr int kRowsPerCopy = 1024;

  std::int64_t chunk_elements() const {
    return std::int64_t{1} * chunk_ * problem_.num_kv_heads * columns_;
  }
  // Later pages lie before earlier ones.
  int place_of(int chunk) const {
    return is_paged(problem_.kv_layout) ? num_chunks_ - 1 - chunk : chunk;
  }

  // The rows of the positions [first, first + chunk_).
  void write_chunk(int chunk, int first) {
    const std::size_t row_size = std::size_t{1} * problem_.num_kv_heads * columns_;
    std::vector<std::uint16_t> k(static_cast<std::size_t>(chunk_elements()));
    std::vector<std::uint16_t> v(v_.ptr() != 0 ? k.size() : 0);
    for (int position = first; position < first + chunk_; ++position) {
      const std::size_t at = static_cast<std::size_t>(position % chunk_) * row_size;
      sequence_.write_key(position, problem_.kv_layout, &k[at]);
      if (!v.empty()) sequence_.write_value(position, &v[at]);
    }
    const auto offset =
        static_cast<DevicePtr>(place_of(chunk) * chunk_elements() * kBytesPerElement);
    device_.copy_to_device(k_.ptr() + offset, std::as_bytes(std::span(k)), nullptr);
    if (!v.empty()) {
      device_.copy_to_device(v_.ptr() + offset, std::as_bytes(std::span(v)), nullptr);
    }
  }

  Device& device_;
  const LogicalSequence& sequence_;
  Problem problem_;
  int length_;
  int chunk_ = 0;  // positions that are written in one go: a page, the ring
  int num_chunks_ = 0;
  int columns_ = 0;
  DeviceMem k_, v_, block_table_;
};

}  // namespace attune
