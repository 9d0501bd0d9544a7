// What a CTA of a kernel that does not split keys works on: a block of packed query rows against
// all keys that they see.
#pragma once

#include "templates/config.h"
#include "templates/device/kv_rows.cuh"
#include "templates/params.h"
#include "templates/split_plan.h"

namespace attune {

struct RowWork {
  int batch_idx;
  int sequence;
  int kv_head;
  int kv_len;
  int first_row;  // packed rows [first_row, first_row + BLOCK_M), those from num_rows on are padding
  int num_rows;
  KeyRange keys;  // seen by some row of the block

  // Keys that every row of the block sees.
  template <int BLOCK_M>
  __device__ __forceinline__ KeyRange unmasked(const AttentionParams& p) const {
    const int last_row = min(first_row + BLOCK_M, num_rows) - 1;
    return {keys_of(p, last_row / p.group_size).begin, keys_of(p, first_row / p.group_size).end};
  }
  __device__ __forceinline__ KeyRange keys_of(const AttentionParams& p, int token) const {
    return visible_keys(kv_len, p.seqlen_q, token, token, p.window, p.causal);
  }
};

// `place` 0 is the block of the last rows, which see the most keys.
template <int BLOCK_M>
__device__ __forceinline__ RowWork row_work(const AttentionParams& p, int place, int kv_head,
                                            int batch_idx) {
  RowWork work;
  work.kv_head = kv_head;
  work.batch_idx = batch_idx;
  work.sequence = sequence_of(p, batch_idx);
  work.kv_len = p.kv_len[batch_idx] + p.kv_len_add;
  work.num_rows = p.seqlen_q * p.group_size;
  work.first_row = (p.num_row_blocks - 1 - place) * BLOCK_M;
  const int last_row = min(work.first_row + BLOCK_M, work.num_rows) - 1;
  work.keys = visible_keys(work.kv_len, p.seqlen_q, work.first_row / p.group_size,
                           last_row / p.group_size, p.window, p.causal);
  return work;
}

// Elements from the first row of a KV head's queries, or of its output, to a packed row.
__device__ __forceinline__ int64 row_offset(const AttentionParams& p, int packed,
                                            int64 token_stride, int64 head_stride) {
  const int token = packed / p.group_size;
  return token * token_stride + (packed - token * p.group_size) * head_stride;
}

}  // namespace attune
