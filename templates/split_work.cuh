// What a CTA of a kernel that splits keys works on: the same grid and the same plan for every
// family that combine.cuh follows.
#pragma once

#include "templates/config.h"
#include "templates/device/kv_rows.cuh"
#include "templates/device/ptx.cuh"
#include "templates/device/softmax.cuh"
#include "templates/params.h"
#include "templates/split_plan.h"

namespace attune {

// What a CTA works on.
struct SplitWork {
  int batch_idx;
  int sequence;
  int kv_head;
  int row_block;
  int split;
  int kv_len;
  int first_row;  // packed rows [first_row, first_row + BLOCK_M), those from num_rows on are
                  // padding
  int num_rows;
  int num_splits;     // of this row block
  int begin;          // first tile's first key of this split
  int visible_begin;  // keys before it are seen by no row
  int end;
};

// False when the CTA is past the plan. Without any visible key split 0 still writes the zero rows.
template <KernelConfig kConfig, int kHeadDim, bool kInvariant>
__device__ __forceinline__ bool find_work(const AttentionParams& p, SplitWork& work) {
  work.row_block = blockIdx.x % p.num_row_blocks;
  work.split = blockIdx.x / p.num_row_blocks;
  work.kv_head = blockIdx.y;
  work.batch_idx = blockIdx.z;
  work.sequence = sequence_of(p, work.batch_idx);
  work.num_rows = p.seqlen_q * p.group_size;
  work.first_row = work.row_block * kConfig.block_m;
  const int last_row = min(work.first_row + kConfig.block_m, work.num_rows) - 1;
  work.kv_len = p.kv_len[work.batch_idx] + p.kv_len_add;
  const KeyRange keys = visible_keys(work.kv_len, p.seqlen_q, work.first_row / p.group_size,
                                     last_row / p.group_size, p.window, p.causal);
  work.visible_begin = keys.begin;
  if constexpr (kInvariant) {
    const ChunkRule rule = chunk_rule(kHeadDim, p.num_kv_heads, p.window);
    const ChunkPlan plan = plan_chunks(rule, keys, p.split_cap);
    work.num_splits = plan.num_chunks;
    // The last chunks are the longest and start first.
    work.split = max(plan.num_chunks, 1) - 1 - work.split;
    if (work.split < 0) return false;
    const int chunk = plan.first_chunk + work.split;
    const int begin = chunk_begin(rule, chunk);
    // Tiles that no row sees are left out.
    work.begin = begin + max(keys.begin - begin, 0) / kConfig.block_n * kConfig.block_n;
    work.end = min(chunk_begin(rule, chunk + 1), keys.end);
    return true;
  } else {
    const SplitPlan plan = plan_splits(keys, kConfig.block_n, p.split_cap);
    work.num_splits = plan.num_splits;
    work.begin = keys.begin + work.split * plan.keys_per_split;
    work.end = min(work.begin + plan.keys_per_split, keys.end);
    return work.split < max(plan.num_splits, 1);
  }
}

// Where the result of a packed row goes: to the caller when it is complete, else to the workspace.
struct RowTarget {
  int64 offset;  // of the row's first number in out, or in o_partial
  float* lse;    // null: not asked for
  float lse_unit;

  // `value` in log2 units.
  __device__ __forceinline__ void write_lse(float value) const {
    if (lse != nullptr) *lse = value * lse_unit;
  }
};

template <int kBlockM, int kHeadDim>
__device__ __forceinline__ RowTarget row_target(const AttentionParams& p, const SplitWork& work,
                                                int row, bool is_complete) {
  if (!is_complete) {
    const int64 at = partial_row(work.batch_idx, p.num_kv_heads, work.kv_head, p.num_row_blocks,
                                 work.row_block, p.split_cap, work.split, kBlockM, row);
    return {at * kHeadDim, p.lse_partial + at, 1.0f};
  }
  const int packed = work.first_row + row;
  const int token = packed / p.group_size;
  const int head = work.kv_head * p.group_size + packed - token * p.group_size;
  const int64 query = static_cast<int64>(work.batch_idx) * p.seqlen_q + token;
  return {
      work.batch_idx * p.out_batch_stride + token * p.out_token_stride + head * p.out_head_stride,
      p.lse == nullptr ? nullptr : p.lse + query * (p.num_kv_heads * p.group_size) + head, kLn2};
}

}  // namespace attune
