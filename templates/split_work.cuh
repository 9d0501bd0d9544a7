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
  int split;       // of the sequence
  int first_slot;  // of the sequence's first split
  int kv_len;
  int first_row;  // packed rows [first_row, first_row + BLOCK_M), those from num_rows on are
                  // padding
  int num_rows;
  int num_splits;     // of this row block
  int begin;          // first tile's first key of this split
  int visible_begin;  // keys before it are seen by no row
  int end;
};

// Of a packed row below kMostTokenRows. A division takes five times the code, which is cold where it runs
// once a launch.
__device__ __forceinline__ int token_of(const AttentionParams& p, int packed) {
  return token_of_row(packed, rcp(static_cast<float>(p.group_size)));
}

// The query tokens of a row block.
struct BlockTokens {
  int first, last;

  template <int kBlockM>
  static __device__ __forceinline__ BlockTokens of(const AttentionParams& p, int row_block) {
    if (p.num_row_blocks == 1) return {0, p.seqlen_q - 1};
    const int last_row = min((row_block + 1) * kBlockM, p.seqlen_q * p.group_size) - 1;
    return {row_block * kBlockM / p.group_size, last_row / p.group_size};
  }
  // The keys that some of them see in a sequence.
  __device__ __forceinline__ KeyRange keys(const AttentionParams& p, int kv_len) const {
    return visible_keys(kv_len, p.seqlen_q, first, last, p.window, p.causal);
  }
};

// Splits of a sequence that shares the slots of a row block with the others of its batch.
struct SharedSplits {
  int batch_idx;  // -1: the slot is nobody's
  int first_slot;
  int num_splits;
  int size;  // keys of one
};

// Whether the kernels are for sequences that share slots (shares_slots).
#ifdef ATTUNE_SHARED_SLOTS
constexpr bool kSharesSlots = true;
#else
constexpr bool kSharesSlots = false;
#endif

// Those of the batch entry that has slot `slot` (shared_split_size). Whole warps call it.
__device__ __forceinline__ SharedSplits find_shared_splits(const AttentionParams& p,
                                                           const BlockTokens& tokens, int block_n,
                                                           int slot) {
  static_assert(kSplitSizes == kWarpSize, "a lane tries a size");
  const int lane = threadIdx.x % kWarpSize;
  const auto num_keys = [&](int of) {
    const KeyRange keys = tokens.keys(p, p.kv_len[of] + p.kv_len_add);
    return keys.end - keys.begin;
  };
  int64 all = 0;
#pragma unroll 1
  for (int i = 0; i < p.batch; ++i) all += num_keys(i);
  // The first lane whose size leaves room.
  const auto first_to_fit = [&](int size_tried) {
    int slots = 0;
#pragma unroll 1
    for (int i = 0; i < p.batch; ++i) slots += shared_splits(num_keys(i), size_tried);
    return __ffs(__ballot_sync(0xffffffffu, slots <= p.num_slots)) - 1;
  };
  const int coarse = shared_split_size(all, p.num_slots, p.batch, block_n, lane);
  const int fits = first_to_fit(coarse);
  int size = __shfl_sync(0xffffffffu, coarse, fits);
  const int too_small = __shfl_sync(0xffffffffu, coarse, fits > 0 ? fits - 1 : 0);
  if (too_small < size) {
    const int fine = finer_split_size(too_small, size, lane);
    size = __shfl_sync(0xffffffffu, fine, first_to_fit(fine));
  }

  int before = 0;
#pragma unroll 1
  for (int group = 0; group < p.batch; group += kWarpSize) {
    const int entry = group + lane;
    const int splits = entry < p.batch ? shared_splits(num_keys(entry), size) : 0;
    int until = splits;
#pragma unroll 1
    for (int lanes = 1; lanes < kWarpSize; lanes *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, until, lanes);
      if (lane >= lanes) until += other;
    }
    const unsigned found = __ballot_sync(0xffffffffu, before + until > slot);
    if (found != 0) {
      const int owner = __ffs(found) - 1;
      return {group + owner, before + __shfl_sync(0xffffffffu, until - splits, owner),
              __shfl_sync(0xffffffffu, splits, owner), size};
    }
    before += __shfl_sync(0xffffffffu, until, kWarpSize - 1);
  }
  return {-1, 0, 0, size};
}

// False when the CTA is past the plan. Without any visible key split 0 still writes the zero rows.
// All threads of the CTA call it. kLastRowsFirst: they see the most keys.
template <KernelConfig kConfig, int kHeadDim, bool kInvariant, bool kLastRowsFirst = false>
__device__ __forceinline__ bool find_work(const AttentionParams& p, SplitWork& work) {
  work.row_block = blockIdx.x % p.num_row_blocks;
  if (kLastRowsFirst) work.row_block = p.num_row_blocks - 1 - work.row_block;
  work.kv_head = blockIdx.y;
  work.num_rows = p.seqlen_q * p.group_size;
  work.first_row = work.row_block * kConfig.block_m;
  const BlockTokens tokens = BlockTokens::of<kConfig.block_m>(p, work.row_block);
  const int slot = blockIdx.x / p.num_row_blocks;
  SharedSplits shared{};
  const bool shares = kSharesSlots && p.split_cap == 0;
  if (shares) {
    shared = find_shared_splits(p, tokens, kConfig.block_n, slot);
    if (shared.batch_idx < 0) return false;
    work.batch_idx = shared.batch_idx;
    work.first_slot = shared.first_slot;
    work.split = slot - work.first_slot;
  } else {
    work.batch_idx = blockIdx.z;
    work.first_slot = work.batch_idx * p.split_cap;
    work.split = slot;
  }
  work.sequence = sequence_of(p, work.batch_idx);
  work.kv_len = p.kv_len[work.batch_idx] + p.kv_len_add;
  const KeyRange keys = tokens.keys(p, work.kv_len);
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
    if (shares) {
      work.num_splits = shared.num_splits;
      work.begin = keys.begin + work.split * shared.size;
      work.end = min(keys.end - work.begin, shared.size) + work.begin;
      return true;
    }
    const SplitPlan plan = plan_splits(keys, kConfig.block_n, p.split_cap);
    work.num_splits = plan.num_splits;
    work.begin = keys.begin + work.split * plan.keys_per_split;
    work.end = min(work.begin + plan.keys_per_split, keys.end);
    return work.split < max(plan.num_splits, 1);
  }
}

// [num_row_blocks, batch]; see SharedPlan.
template <int kBlockM, bool kPacked>
__device__ __forceinline__ SharedPlan* shared_plans(const AttentionParams& p) {
  const int64 rows = num_partial_rows(p.num_kv_heads, p.num_row_blocks, p.num_slots, kBlockM);
  return reinterpret_cast<SharedPlan*>(p.lse_partial + rows * partial_stats(kPacked));
}
// Leaves the sequence's plan to the combine. One thread of every CTA with work calls it, behind the
// wait for the kernel in front, whose combine may still read the last one.
template <int kBlockM, bool kPacked = false>
__device__ __forceinline__ void publish_plan(const AttentionParams& p, const SplitWork& work) {
  if (!kSharesSlots || p.split_cap != 0 || work.split != 0 || work.kv_head != 0) return;
  shared_plans<kBlockM, kPacked>(p)[work.row_block * p.batch + work.batch_idx] = {work.first_slot,
                                                                                  work.num_splits};
}

// Numbers of packed partial rows: adding kFixedBias leaves the rounded number in the last bits of a
// float.
constexpr float kFixedBias = 8388608.0f + 32768.0f;  // 2^23 + 2^15
constexpr uint32 kFixedExponent = 0x4b000000;        // bits of 2^23
__device__ __forceinline__ uint32 pack_fixed(float low, float high, float scale) {
  const uint32 first = __float_as_uint(__fmaf_rn(low, scale, kFixedBias));
  const uint32 second = __float_as_uint(__fmaf_rn(high, scale, kFixedBias));
  return (first & 0xffff) | second << 16;
}
__device__ __forceinline__ float unpack_fixed(uint16 number) {
  return __uint_as_float(kFixedExponent | number) - kFixedBias;
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

template <int kBlockM, int kHeadDim, bool kPacked = false>
__device__ __forceinline__ RowTarget row_target(const AttentionParams& p, const SplitWork& work,
                                                int row, bool is_complete) {
  if (!is_complete) {
    const int64 at = partial_row(work.kv_head, p.num_row_blocks, work.row_block, p.num_slots,
                                 work.first_slot + work.split, kBlockM, row);
    return {at * kHeadDim, p.lse_partial + at * partial_stats(kPacked), 1.0f};
  }
  const int packed = work.first_row + row;
  const int token = token_of(p, packed);
  const int head = work.kv_head * p.group_size + packed - token * p.group_size;
  const int64 query = static_cast<int64>(work.batch_idx) * p.seqlen_q + token;
  return {
      work.batch_idx * p.out_batch_stride + token * p.out_token_stride + head * p.out_head_stride,
      p.lse == nullptr ? nullptr : p.lse + query * (p.num_kv_heads * p.group_size) + head, kLn2};
}

}  // namespace attune
