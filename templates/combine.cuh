// Computes  out and lse from the partial results of the splits of splitkv.cuh:
//           lse = log sum exp(lse_i), out = sum exp(lse_i - lse) * o_i.
// Grid      (slices of the head dimension * packed rows of a KV head, num_kv_heads, batch); of shared
//           slots, where most sequences have few splits or one, (rows, num_kv_heads, batch).
// Threads   kCombineThreads.
// Tiles     one row x combine_columns(head_dim) columns; a lane holds 4 of them (2 at head_dim 64),
//           the warps of a slice share the splits, each with a running maximum of its own.
// Sync      griddepcontrol_wait: the partials are visible. One __syncthreads: the warps' sums are
//           visible to the first one of a slice, which writes.
// Splits    the same plan as in the split kernel, from the same kv_len; of shared slots as it left it
//           in the workspace. One split or none: nothing to do, the split kernel has written the row.
//           Invariant: the chunk's number decides
//           which warp adds it, and a chunk that the row does not see changes no bit.
#pragma once

#include "templates/config.h"
#include "templates/device/ptx.cuh"
#include "templates/device/softmax.cuh"
#include "templates/params.h"
#include "templates/split_plan.h"
#include "templates/split_work.cuh"

namespace attune {

// Floats that are loaded by one instruction.
template <int kCount>
struct alignas(kCount * 4) Vector {
  float value[kCount];
};

// Weighted sum of some splits: sum_i 2^(lse_i - max) * o_i.
template <int kCount>
struct PartialSum {
  float max = negative_infinity();
  float weight = 0.0f;
  float value[kCount] = {};

  __device__ __forceinline__ void add(float other_max, float other_weight,
                                      const float (&other)[kCount]) {
    const float new_max = fmaxf(max, other_max);
    const float subtract = finite_or_zero(new_max);
    const float keep = ex2(max - subtract);
    const float take = ex2(other_max - subtract);
    max = new_max;
    weight = __fmaf_rn(weight, keep, __fmul_rn(other_weight, take));
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      value[i] = __fmaf_rn(value[i], keep, __fmul_rn(other[i], take));
    }
  }
};

// A lane's columns of a partial row.
template <int kCount, bool kPacked>
struct PartialColumns;
template <int kCount>
struct PartialColumns<kCount, false> {
  using Row = float;
  Vector<kCount> part;

  __device__ __forceinline__ void load(const float* from) {
    part = *reinterpret_cast<const Vector<kCount>*>(from);
  }
  __device__ __forceinline__ void unpack(float, float (&value)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) value[i] = part.value[i];
  }
};
template <int kCount>
struct PartialColumns<kCount, true> {
  struct alignas(kCount * 2) Numbers {
    uint16 value[kCount];
  };
  using Row = uint16;
  Numbers part;

  __device__ __forceinline__ void load(const uint16* from) {
    part = *reinterpret_cast<const Numbers*>(from);
  }
  __device__ __forceinline__ void unpack(float factor, float (&value)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) value[i] = unpack_fixed(part.value[i]) * factor;
  }
};

// kPacked: of the partial rows (config.h).
template <KernelConfig kConfig, int kHeadDim, bool kInvariant, bool kPacked>
__device__ __forceinline__ void combine(const AttentionParams& p) {
  constexpr int BLOCK_M = kConfig.block_m;
  constexpr int kColumns = combine_columns(kHeadDim);
  constexpr int kLaneColumns = kColumns / kWarpSize;
  constexpr int kSlices = kHeadDim / kColumns;
  constexpr int kWarps = kCombineThreads / kWarpSize;
  constexpr int kSplitWarps = kSharesSlots ? kWarps / kSlices : kWarps;  // of a slice
  static_assert(kSplitWarps > 0, "a CTA has the slices of a row");
  // Splits in flight per warp: one round for all where they fill the device once.
  constexpr int kLoads = 9;
  using Columns = PartialColumns<kLaneColumns, kPacked>;
  using Row = typename Columns::Row;
  __shared__ float values[kWarps][kColumns];
  __shared__ float maxima[kWarps];
  __shared__ float weights[kWarps];

  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  const int slice = kSharesSlots ? warp / kSplitWarps : static_cast<int>(blockIdx.x) % kSlices;
  const int packed = kSharesSlots ? blockIdx.x : blockIdx.x / kSlices;
  const int kv_head = blockIdx.y;
  const int batch_idx = blockIdx.z;
  const int row_block = packed / BLOCK_M;
  const BlockTokens tokens = BlockTokens::of<BLOCK_M>(p, row_block);
  const KeyRange keys = tokens.keys(p, p.kv_len[batch_idx] + p.kv_len_add);
  // The first split that this warp adds.
  int first_split = warp % kSplitWarps;
  const bool shares = kSharesSlots && p.split_cap == 0;
  int num_splits = 0;
  if constexpr (kInvariant) {
    const ChunkPlan plan =
        plan_chunks(chunk_rule(kHeadDim, p.num_kv_heads, p.window), keys, p.split_cap);
    num_splits = plan.num_chunks;
    first_split = (warp - plan.first_chunk % kWarps + kWarps) % kWarps;
  } else if (!shares) {
    num_splits = plan_splits(keys, kConfig.block_n, p.split_cap).num_splits;
  }
  const int64 first = partial_row(kv_head, p.num_row_blocks, row_block, p.num_slots,
                                  batch_idx * p.split_cap, BLOCK_M, packed - row_block * BLOCK_M);
  const float* lse_partial = p.lse_partial + first * partial_stats(kPacked);
  const Row* o_partial = static_cast<const Row*>(p.o_partial) + first * kHeadDim +
                         slice * kColumns + lane * kLaneColumns;

  // Before the wait: what the next kernel reads early was there when the split kernel's own wait ended,
  // and its CTAs begin as soon as those of the split kernel leave. Neighbours that share their reads
  // would begin one after the other: 3% at two row blocks.
  const bool is_early = p.num_row_blocks == 1;
  if (is_early) griddepcontrol_launch_dependents();
  // Before the early exit too: this grid must not end before the split kernel has.
  griddepcontrol_wait();
  if (!is_early) griddepcontrol_launch_dependents();
  if (shares) {
    const SharedPlan plan = shared_plans<BLOCK_M, kPacked>(p)[row_block * p.batch + batch_idx];
    const int64 rows = static_cast<int64>(plan.first_slot) * BLOCK_M;
    lse_partial += rows * partial_stats(kPacked);
    o_partial += rows * kHeadDim;
    num_splits = plan.num_splits;
  }
  if (num_splits <= 1) return;

  PartialSum<kLaneColumns> sum;
  for (int split = first_split; split < num_splits; split += kSplitWarps * kLoads) {
    float lse[kLoads];
    float factor[kLoads];
    Columns part[kLoads] = {};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      lse[i] = negative_infinity();
      factor[i] = 0.0f;
      if (split + i * kSplitWarps >= num_splits) continue;
      const int64 at = static_cast<int64>(split + i * kSplitWarps) * BLOCK_M;
      if constexpr (kPacked) {
        const float2 stats = reinterpret_cast<const float2*>(lse_partial)[at];
        lse[i] = stats.x;
        factor[i] = stats.y;
      } else {
        lse[i] = lse_partial[at];
      }
      part[i].load(o_partial + at * kHeadDim);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      float value[kLaneColumns];
      part[i].unpack(factor[i], value);
      sum.add(lse[i], 1.0f, value);
    }
  }
  if constexpr (kSplitWarps > 1) {
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) {
      values[warp][lane * kLaneColumns + i] = sum.value[i];
    }
    if (lane == 0) {
      maxima[warp] = sum.max;
      weights[warp] = sum.weight;
    }
    __syncthreads();
    if (warp % kSplitWarps != 0) return;
#pragma unroll
    for (int i = 1; i < kSplitWarps; ++i) {
      const int other = warp + i;
      float value[kLaneColumns];
#pragma unroll
      for (int j = 0; j < kLaneColumns; ++j) value[j] = values[other][lane * kLaneColumns + j];
      sum.add(maxima[other], weights[other], value);
    }
  }
  const float inverse = sum.weight > 0.0f ? rcp(sum.weight) : 0.0f;
  const int token = packed / p.group_size;
  const int head = kv_head * p.group_size + packed - token * p.group_size;
  uint16* const out = static_cast<uint16*>(p.out) + batch_idx * p.out_batch_stride +
                      token * p.out_token_stride + head * p.out_head_stride + slice * kColumns +
                      lane * kLaneColumns;
#pragma unroll
  for (int i = 0; i < kLaneColumns; i += 2) {
    *reinterpret_cast<uint32*>(out + i) =
        cvt_bf16x2(sum.value[i] * inverse, sum.value[i + 1] * inverse);
  }
  if (p.lse != nullptr && slice == 0 && lane == 0) {
    const int num_q_heads = p.num_kv_heads * p.group_size;
    const int64 query = static_cast<int64>(batch_idx) * p.seqlen_q + token;
    p.lse[query * num_q_heads + head] =
        sum.weight > 0.0f ? (sum.max + lg2(sum.weight)) * kLn2 : negative_infinity();
  }
}

}  // namespace attune
