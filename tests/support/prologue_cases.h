// Prologues that tests run on any device: raw projections with poisoned gaps, the cache around the
// positions to be written, and what must be in every element of the outputs afterwards.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "templates/prologue_plan.h"
#include "tests/support/prologue_reference.h"

namespace attune {

struct PrologueCase {
  std::string name;
  int num_q_heads;
  int num_kv_heads;
  std::vector<int> kv_len;  // of the batch entries
  int seqlen_q = 1;
  std::vector<int> sequence = {};  // of the batch entries; empty: their own
  int page_size = 16;              // of paged layouts
  int padding = 0;                 // elements between tokens, rows and sequences
  bool head_major = false;         // the cache has heads outside of positions
  bool shares_k = false;           // V is made of the K projection
  double scale = 1;                // of the projections
};

// Positions around 0, the ends of pages, the wrap of the ring and the longest contexts, with heads
// like Gemma's.
inline std::vector<PrologueCase> prologue_cases() {
  return {
      {.name = "first", .num_q_heads = 8, .num_kv_heads = 1, .kv_len = {0}},
      {.name = "page end",
       .num_q_heads = 32,
       .num_kv_heads = 16,
       .kv_len = {15, 0},
       .seqlen_q = 3,
       .sequence = {2, 0},
       .padding = 8},
      {.name = "wrap",
       .num_q_heads = 32,
       .num_kv_heads = 4,
       .kv_len = {kMinRingCapacity - 1, kMinRingCapacity - 2, 2 * kMinRingCapacity + 5},
       .seqlen_q = 4,
       .sequence = {1, 2, 0},
       .page_size = 64,
       .padding = 16,
       .head_major = true,
       .shares_k = true,
       .scale = 30},
      {.name = "wrap of a longer ring",
       .num_q_heads = 16,
       .num_kv_heads = 1,
       .kv_len = {2 * (kMinRingCapacity + 37) - 3},
       .seqlen_q = 9,
       .page_size = 256,
       .shares_k = true,
       .scale = 0.01},
      {.name = "no KV heads",
       .num_q_heads = 8,
       .num_kv_heads = 0,
       .kv_len = {1023, 5},
       .seqlen_q = 2,
       .padding = 24},
      {.name = "half way",
       .num_q_heads = 16,
       .num_kv_heads = 2,
       .kv_len = {131071, 131070},
       .seqlen_q = 2,
       .page_size = 128},
      {.name = "longest",
       .num_q_heads = 32,
       .num_kv_heads = 16,
       .kv_len = {262139, 262131},
       .seqlen_q = 5,
       .sequence = {1, 0},
       .page_size = 32,
       .padding = 8,
       .head_major = true},
  };
}

inline constexpr std::uint16_t kProloguePoison = 0xcdcd;

// bf16 data between guards. `origin` is the place of element 0 of what the kernel gets, which may
// lie in front of the data where a cache's first positions are not kept.
struct GuardedImage {
  static constexpr int64 kGuard = 64;
  std::vector<std::uint16_t> bits;
  int64 origin = kGuard;

  GuardedImage() = default;
  explicit GuardedImage(int64 elements)
      : bits(static_cast<std::size_t>(elements + 2 * kGuard), kProloguePoison) {}
  std::uint16_t& operator[](int64 at) { return bits.at(static_cast<std::size_t>(origin + at)); }
  std::uint16_t operator[](int64 at) const {
    return bits.at(static_cast<std::size_t>(origin + at));
  }
};

// What an element must be: NaN where nothing may be written. Of two products of values up to
// `magnitude`, which may cancel.
struct ExpectedImage {
  std::vector<double> values;
  std::vector<double> magnitudes;
};

// One case for a layout and head_dim: everything that is uploaded, and what must come out.
class PrologueProblem {
 public:
  PrologueProblem(KvLayout kv_layout, int dim, const PrologueCase& c)
      : layout(kv_layout), head_dim(dim), test(c), random_(4711) {
    make_inputs();
    make_cache();
    make_expected();
  }

  KvLayout layout;
  int head_dim;
  PrologueCase test;
  PrologueParams params{};  // without pointers
  GuardedImage q, k, v, q_out, k_cache, v_cache;
  std::vector<float> q_weight, k_weight, inv_freq;  // q_weight as the kernel gets it
  std::vector<int> kv_len, sequence, block_table;
  ExpectedImage q_expected, k_expected, v_expected;

  int batch() const { return static_cast<int>(kv_len.size()); }
  CacheMap map() const { return {layout, params, block_table}; }

  // Rows in head dimensions' own order.
  std::vector<double> reference_q(int batch_idx, int token, int head) const {
    return reference_rotation(norm_of(q, params.q_batch_stride, params.q_token_stride, batch_idx,
                                      token, head, q_weights_),
                              inv_freq, kv_len[batch_idx] + token);
  }
  std::vector<double> reference_k(int batch_idx, int token, int head) const {
    return reference_rotation(norm_of(k, params.k_batch_stride, params.k_token_stride, batch_idx,
                                      token, head, k_weights_),
                              inv_freq, kv_len[batch_idx] + token);
  }
  std::vector<double> reference_v(int batch_idx, int token, int head) const {
    return norm_of(value_source(), params.v_batch_stride, params.v_token_stride, batch_idx, token,
                   head, {});
  }

 private:
  // Unified rows are for layers without a V projection.
  bool shares_k() const { return test.shares_k || is_unified(layout); }
  const GuardedImage& value_source() const { return shares_k() ? k : v; }

  std::vector<double> norm_of(const GuardedImage& image, int64 batch_stride, int64 token_stride,
                              int batch_idx, int token, int head,
                              std::span<const double> weight) const {
    const int64 first =
        image.origin + batch_idx * batch_stride + token * token_stride + head * head_dim;
    return reference_norm(std::span(image.bits).subspan(first, head_dim), weight, params.eps);
  }

  GuardedImage projection(int num_heads, int64* batch_stride, int64* token_stride) {
    *token_stride = num_heads * head_dim + test.padding;
    *batch_stride = test.seqlen_q * *token_stride + 2 * test.padding;
    GuardedImage image(batch() * *batch_stride);
    std::normal_distribution<double> normal(0, test.scale);
    for (int b = 0; b < batch(); ++b) {
      for (int t = 0; t < test.seqlen_q; ++t) {
        for (int i = 0; i < num_heads * head_dim; ++i) {
          image[b * *batch_stride + t * *token_stride + i] = bf16_of(normal(random_));
        }
      }
    }
    // A row of zeros: nothing but eps keeps it from being NaN.
    if (batch() > 1 && num_heads > 0) {
      for (int i = 0; i < head_dim; ++i) image[*batch_stride + i] = 0;
    }
    return image;
  }

  void make_inputs() {
    kv_len = test.kv_len;
    sequence = test.sequence;
    params.batch = batch();
    params.seqlen_q = test.seqlen_q;
    params.num_q_heads = test.num_q_heads;
    params.num_kv_heads = test.num_kv_heads;
    params.eps = 1e-6f;
    q = projection(test.num_q_heads, &params.q_batch_stride, &params.q_token_stride);
    k = projection(test.num_kv_heads, &params.k_batch_stride, &params.k_token_stride);
    v = projection(test.num_kv_heads, &params.v_batch_stride, &params.v_token_stride);
    // As Gemma: a quarter of a global layer's pairs, all of a sliding layer's.
    params.num_pairs = head_dim == 512 ? 64 : head_dim / 2;
    const double theta = head_dim == 512 ? 1e6 : 1e4;
    for (int i = 0; i < params.num_pairs; ++i) {
      inv_freq.push_back(static_cast<float>(std::pow(theta, -2.0 * i / head_dim)));
    }
    std::lognormal_distribution<float> weights(-0.35f, 1.0f);
    for (int i = 0; i < head_dim; ++i) {
      q_weight.push_back(weights(random_));
      k_weight.push_back(weights(random_));
      q_weights_.push_back(q_weight.back());
      k_weights_.push_back(k_weight.back());
    }
    if (is_unified(layout)) {
      q_weight = fold_unified_weights(q_weight, k_weight);
      for (const int dim : unified_order(false)) {
        if (dim % 256 >= 64) q_weights_[dim] *= k_weights_[dim];
      }
    }
    params.q_out_token_stride = test.num_q_heads * head_dim + 3 * test.padding;
    params.q_out_batch_stride = test.seqlen_q * params.q_out_token_stride + test.padding;
    q_out = GuardedImage(batch() * params.q_out_batch_stride);
  }

  // Rows from a little before the first position to a little behind the last one.
  void make_cache() {
    constexpr int kRowsAround = 3;
    const auto [least, most] = std::minmax_element(kv_len.begin(), kv_len.end());
    int first_row = std::max(0, *least - kRowsAround);
    int rows = *most + test.seqlen_q + kRowsAround - first_row;
    int num_batches = 1;
    for (const int s : sequence) num_batches = std::max(num_batches, s + 1);
    num_batches = std::max(num_batches, batch());
    if (layout == KvLayout::kRing) {
      first_row = 0;
      rows = test.head_major ? kMinRingCapacity : kMinRingCapacity + 37;
      params.ring_capacity = rows;
    } else if (is_paged(layout)) {
      num_batches = make_pages(num_batches);
      first_row = 0;
      rows = test.page_size;
    }
    const int columns = kv_row_columns(layout, head_dim);
    const auto strides = [&](int padding, int64* of_batch, int64* of_token, int64* of_head) {
      const int64 heads = test.num_kv_heads;
      *(test.head_major ? of_token : of_head) = columns + padding;
      *of_token = test.head_major ? *of_token : heads * *of_head + padding;
      *of_head = test.head_major ? rows * *of_token + padding : *of_head;
      *of_batch = (test.head_major ? heads * *of_head : rows * *of_token) + padding;
      GuardedImage image(num_batches * *of_batch);
      image.origin -= first_row * *of_token;
      return image;
    };
    k_cache = strides(test.padding, &params.k_cache_batch_stride, &params.k_cache_token_stride,
                      &params.k_cache_head_stride);
    v_cache = strides(2 * test.padding, &params.v_cache_batch_stride, &params.v_cache_token_stride,
                      &params.v_cache_head_stride);
  }

  // Pages in an order of their own for the positions of this launch; the entries of all others name
  // a page that is nowhere. Returns the number of pages, a few more than are used.
  int make_pages(int num_sequences) {
    constexpr int kNowhere = 1 << 28;
    params.page_shift = std::countr_zero(static_cast<unsigned>(test.page_size));
    const int last = *std::max_element(kv_len.begin(), kv_len.end()) + test.seqlen_q - 1;
    params.block_table_stride = last / test.page_size + 4;
    block_table.assign(num_sequences * params.block_table_stride, kNowhere);
    std::vector<int*> used;
    for (int b = 0; b < batch(); ++b) {
      const int s = sequence.empty() ? b : sequence[b];
      for (int page = kv_len[b] / test.page_size;
           page <= (kv_len[b] + test.seqlen_q - 1) / test.page_size; ++page) {
        used.push_back(&block_table[s * params.block_table_stride + page]);
      }
    }
    std::shuffle(used.begin(), used.end(), random_);
    for (std::size_t i = 0; i < used.size(); ++i) *used[i] = static_cast<int>(i) + 1;
    return static_cast<int>(used.size()) + 2;
  }

  static ExpectedImage untouched(const GuardedImage& image) {
    return {std::vector<double>(image.bits.size(), std::numeric_limits<double>::quiet_NaN()),
            std::vector<double>(image.bits.size())};
  }
  static double largest(const std::vector<double>& row) {
    double most = 0;
    for (const double x : row) most = std::max(most, std::abs(x));
    return most;
  }

  void make_expected() {
    q_expected = untouched(q_out);
    k_expected = untouched(k_cache);
    v_expected = untouched(v_cache);
    const auto expect = [](ExpectedImage& image, int64 at, double value, double magnitude) {
      image.values.at(at) = value;
      image.magnitudes.at(at) = magnitude;
    };
    const std::vector<int> q_columns = unified_columns(true);
    const CacheMap places = map();
    for (int b = 0; b < batch(); ++b) {
      for (int t = 0; t < test.seqlen_q; ++t) {
        for (int head = 0; head < test.num_q_heads; ++head) {
          const auto row = reference_q(b, t, head);
          const int64 first = q_out.origin + b * params.q_out_batch_stride +
                              t * params.q_out_token_stride + head * head_dim;
          for (int dim = 0; dim < head_dim; ++dim) {
            const int column = is_unified(layout) ? q_columns[dim] : dim;
            expect(q_expected, first + column, row[dim], largest(row));
          }
        }
        for (int head = 0; head < test.num_kv_heads; ++head) {
          const auto k_row = reference_k(b, t, head);
          const auto v_row = reference_v(b, t, head);
          const int s = sequence.empty() ? b : sequence[b];
          const int position = kv_len[b] + t;
          for (int dim = 0; dim < head_dim; ++dim) {
            if (const auto at = places.key(s, head, position, dim)) {
              expect(k_expected, k_cache.origin + *at, k_row[dim], largest(k_row));
            }
            const GuardedImage& image = is_unified(layout) ? k_cache : v_cache;
            expect(is_unified(layout) ? k_expected : v_expected,
                   image.origin + places.value(s, head, position, dim), v_row[dim], largest(v_row));
          }
        }
      }
    }
  }

  std::mt19937 random_;
  std::vector<double> q_weights_, k_weights_;  // q's as the formula has them: folded in double
};

}  // namespace attune
