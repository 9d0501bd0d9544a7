// Computes  the queries of an attention kernel and the new rows of a KV cache from a layer's raw
//           projections: RMSNorm of q, k and v (kNormed), rotary embedding of q and k. In fp32,
//           rounded to bf16 once at the end.
// Grid      (seqlen_q, blocks of a token's rows, batch). Threads: a multiple of 32 up to
//           kPrologueMaxThreads (prologue_plan.h).
// Rows      a warp has one: a KV head with its K and V, or a query head. KV heads come first, they
//           have the most to do.
// Lanes     a lane holds some neighbouring dimensions and those head_dim / 2 above them: the pairs
//           that the rotation mixes. At head_dim 64 half of the lanes hold none.
// Order     loads are written in front of the sums that do not need them: one latency, not three.
// Sync      griddepcontrol_wait: the projections and kv_len are visible, and nobody reads the old
//           queries any more.
// Overlap   attention may begin at once, or behind the wait (PrologueParams::overlap). It reads the lengths
//           and older keys before this kernel ends.
// Bits      of a row depend on its values and its position only.
// Limits    head_dim 64, 128, 256 or 512, of unified layouts 512 with num_pairs 64; num_pairs a
//           multiple of prologue_lane_pairs; weights and inv_freq 16-byte aligned.
// Source    the config.json of the model; docs/gemma4-attention.md.
#pragma once

#include "templates/config.h"
#include "templates/device/bf16.cuh"
#include "templates/device/kv_rows.cuh"
#include "templates/device/ptx.cuh"
#include "templates/device/rope.cuh"
#include "templates/params.h"
#include "templates/prologue_config.h"

namespace attune {

template <int kCount>
__device__ __forceinline__ void load_floats(float (&to)[kCount], const float* from) {
  constexpr int kPerLoad = kCount < 4 ? kCount : 4;
  struct alignas(4 * kPerLoad) Load {
    float values[kPerLoad];
  };
#pragma unroll
  for (int i = 0; i < kCount / kPerLoad; ++i) {
    const Load load = reinterpret_cast<const Load*>(from)[i];
#pragma unroll
    for (int j = 0; j < kPerLoad; ++j) to[i * kPerLoad + j] = load.values[j];
  }
}

// How a lane's pairs turn at a position: all of them or none.
template <int kHeadDim>
struct Rotation {
  static constexpr int kPairs = prologue_lane_pairs(kHeadDim);

  bool turns;
  SinCos pairs[kPairs];

  // Of pairs first_pair, first_pair + 1, ...
  __device__ __forceinline__ Rotation(const float* inv_freq, int num_pairs, int first_pair,
                                      int position)
      : turns(first_pair < num_pairs) {
    if (!turns) return;
    float frequency[kPairs];
    load_floats(frequency, inv_freq + first_pair);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      pairs[i] = sin_cos(__fmul_rn(static_cast<float>(position), frequency[i]));
    }
  }
};

// A lane's part of a row: dimensions first, first + 1, ... and those half a row above them.
template <int kHeadDim>
struct RowPart {
  static constexpr int kPairs = prologue_lane_pairs(kHeadDim);
  static constexpr int kLanes = kHeadDim / 2 / kPairs;  // that hold anything
  static constexpr int kHalf = kHeadDim / 2;

  int first;
  float low[kPairs] = {};
  float high[kPairs] = {};

  __device__ __forceinline__ explicit RowPart(int lane) : first(lane * kPairs) {}
  __device__ __forceinline__ bool is_empty() const { return kLanes < kWarpSize && first >= kHalf; }

  __device__ __forceinline__ void load(const uint16* row) {
    if (is_empty()) return;
    load_bf16(low, row + first);
    load_bf16(high, row + first + kHalf);
  }
  __device__ __forceinline__ void load(const float* row) {
    if (is_empty()) return;
    load_floats(low, row + first);
    load_floats(high, row + first + kHalf);
  }
  // To columns of a row in some order of the dimensions.
  __device__ __forceinline__ void store(uint16* row, int low_column, int high_column) const {
    if (is_empty()) return;
    store_bf16(row + low_column, low);
    store_bf16(row + high_column, high);
  }

  // 1 / sqrt(mean of squares + eps), the same in all lanes.
  __device__ __forceinline__ float inverse_rms(float eps) const {
    float low_sum = 0.0f;
    float high_sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      low_sum = __fmaf_rn(low[i], low[i], low_sum);
      high_sum = __fmaf_rn(high[i], high[i], high_sum);
    }
    float sum = __fadd_rn(low_sum, high_sum);
#pragma unroll
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, distance));
    }
    return __fdiv_rn(1.0f, __fsqrt_rn(__fmaf_rn(sum, 1.0f / kHeadDim, eps)));
  }

  __device__ __forceinline__ void multiply(float factor) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      low[i] = __fmul_rn(low[i], factor);
      high[i] = __fmul_rn(high[i], factor);
    }
  }
  __device__ __forceinline__ void multiply(const RowPart& factors) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      low[i] = __fmul_rn(low[i], factors.low[i]);
      high[i] = __fmul_rn(high[i], factors.high[i]);
    }
  }

  __device__ __forceinline__ void rotate(const Rotation<kHeadDim>& rotation) {
    if (!rotation.turns) return;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) attune::rotate(low[i], high[i], rotation.pairs[i]);
  }
};

// Normed, weighted and rotated query head `head`, in the order that the layout's kernels contract.
template <int kHeadDim, KvLayout kLayout, bool kNormed>
__device__ __forceinline__ void write_query(const PrologueParams& p, int batch_idx, int token,
                                            int head, int position, int lane) {
  RowPart<kHeadDim> q(lane);
  q.load(static_cast<const uint16*>(p.q) + batch_idx * p.q_batch_stride + token * p.q_token_stride +
         head * kHeadDim);
  RowPart<kHeadDim> weight(lane);
  if constexpr (kNormed) weight.load(p.q_weight);
  const Rotation<kHeadDim> rotation(p.inv_freq, p.num_pairs, q.first, position);
  if constexpr (kNormed) {
    q.multiply(q.inverse_rms(p.eps));
    q.multiply(weight);
  }
  q.rotate(rotation);
  uint16* const out = static_cast<uint16*>(p.q_out) + batch_idx * p.q_out_batch_stride +
                      token * p.q_out_token_stride + head * kHeadDim;
  q.store(out, query_column(kLayout, q.first), query_column(kLayout, q.first + q.kHalf));
}

// K and V of KV head `head` in two buffers.
template <int kHeadDim, KvLayout kLayout, bool kNormed>
__device__ __forceinline__ void append_rows(const PrologueParams& p, int batch_idx, int token,
                                            int head, int position, int lane) {
  RowPart<kHeadDim> k(lane);
  k.load(static_cast<const uint16*>(p.k) + batch_idx * p.k_batch_stride + token * p.k_token_stride +
         head * kHeadDim);
  RowPart<kHeadDim> v(lane);
  v.load(static_cast<const uint16*>(p.v) + batch_idx * p.v_batch_stride + token * p.v_token_stride +
         head * kHeadDim);
  RowPart<kHeadDim> weight(lane);
  if constexpr (kNormed) weight.load(p.k_weight);
  const int sequence = sequence_of(p, batch_idx);
  const auto k_rows = kv_rows<kLayout>(p, sequence, head, p.k_cache_batch_stride,
                                       p.k_cache_token_stride, p.k_cache_head_stride);
  const auto v_rows = kv_rows<kLayout>(p, sequence, head, p.v_cache_batch_stride,
                                       p.v_cache_token_stride, p.v_cache_head_stride);
  uint16* const k_row = static_cast<uint16*>(p.k_cache) + k_rows.offset(position);
  uint16* const v_row = static_cast<uint16*>(p.v_cache) + v_rows.offset(position);
  const Rotation<kHeadDim> rotation(p.inv_freq, p.num_pairs, k.first, position);
  if constexpr (kNormed) {
    k.multiply(k.inverse_rms(p.eps));
    k.multiply(weight);
    v.multiply(v.inverse_rms(p.eps));
  }
  k.rotate(rotation);
  k.store(k_row, k.first, k.first + k.kHalf);
  v.store(v_row, v.first, v.first + v.kHalf);
}

// The unified row of KV head `head`: V is the normed K projection, and of K only what the rotation
// changes is kept.
template <int kHeadDim, KvLayout kLayout>
__device__ __forceinline__ void append_unified_row(const PrologueParams& p, int batch_idx,
                                                   int token, int head, int position, int lane) {
  RowPart<kHeadDim> row(lane);
  row.load(static_cast<const uint16*>(p.k) + batch_idx * p.k_batch_stride +
           token * p.k_token_stride + head * kHeadDim);
  RowPart<kHeadDim> weight(lane);
  weight.load(p.k_weight);
  const auto rows = kv_rows<kLayout>(p, sequence_of(p, batch_idx), head, p.k_cache_batch_stride,
                                     p.k_cache_token_stride, p.k_cache_head_stride);
  uint16* const to = static_cast<uint16*>(p.k_cache) + rows.offset(position);
  const Rotation<kHeadDim> rotation(p.inv_freq, kUnifiedRotated / 2, row.first, position);
  row.multiply(row.inverse_rms(p.eps));
  row.store(to, unified_value_column(row.first), unified_value_column(row.first + row.kHalf));
  if (!rotation.turns) return;
  row.multiply(weight);
  row.rotate(rotation);
  row.store(to, unified_query_column(row.first), unified_query_column(row.first + row.kHalf));
}

template <int kHeadDim, KvLayout kLayout, bool kNormed>
__device__ __forceinline__ void prologue(const PrologueParams& p) {
  static_assert(kHeadDim == 64 || kHeadDim == 128 || kHeadDim == 256 || kHeadDim == 512,
                "lanes hold whole loads of pairs");
  static_assert(!is_unified(kLayout) || (kHeadDim == kUnifiedHeadDim && kNormed));
  const int lane = threadIdx.x % kWarpSize;
  const int row = blockIdx.y * (blockDim.x / kWarpSize) + threadIdx.x / kWarpSize;
  const int token = blockIdx.x;
  const int batch_idx = blockIdx.z;
  if (p.overlap != 0) griddepcontrol_launch_dependents();
  griddepcontrol_wait();
  if (p.overlap == 0) griddepcontrol_launch_dependents();
  if (row >= p.num_kv_heads + p.num_q_heads) return;

  const int position = p.kv_len[batch_idx] + token;
  if (row >= p.num_kv_heads) {
    write_query<kHeadDim, kLayout, kNormed>(p, batch_idx, token, row - p.num_kv_heads, position,
                                            lane);
  } else if constexpr (is_unified(kLayout)) {
    append_unified_row<kHeadDim, kLayout>(p, batch_idx, token, row, position, lane);
  } else {
    append_rows<kHeadDim, kLayout, kNormed>(p, batch_idx, token, row, position, lane);
  }
}

}  // namespace attune
