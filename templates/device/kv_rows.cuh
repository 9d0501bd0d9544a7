// Where the rows of a KV cache lie, by position.
#pragma once

#include "templates/config.h"

namespace attune {

// Rows of one KV head of one sequence.
template <KvLayout kLayout>
struct KvRows {
  int64 first;         // elements from the buffer to the head's row 0; paged: of page 0
  int64 token_stride;  // elements
  int ring_capacity;   // rows; used by the ring layout only
  const int* pages;    // page ids of the sequence, and what follows: used by paged layouts only
  int64 page_stride;
  int page_shift;

  // Elements from the buffer to the row of a position. Of a paged layout the block table is read at
  // position >> page_shift: only there may the position not be one without a page.
  __device__ __forceinline__ int64 offset(int position) const {
    if constexpr (kLayout == KvLayout::kRing) {
      return first + position % ring_capacity * token_stride;
    } else if constexpr (is_paged(kLayout)) {
      const int in_page = position & ((1 << page_shift) - 1);
      return first + pages[position >> page_shift] * page_stride + in_page * token_stride;
    } else {
      return first + position * token_stride;
    }
  }
};

// The rows of `head` of `sequence` in a buffer with these strides. `params` has the layout's other
// fields: AttentionParams or PrologueParams.
template <KvLayout kLayout, typename Params>
__device__ __forceinline__ KvRows<kLayout> kv_rows(const Params& params, int sequence, int head,
                                                   int64 batch_stride, int64 token_stride,
                                                   int64 head_stride) {
  if constexpr (is_paged(kLayout)) {
    return {head * head_stride,
            token_stride,
            0,
            params.block_table + sequence * params.block_table_stride,
            batch_stride,
            params.page_shift};
  } else {
    return {sequence * batch_stride + head * head_stride,
            token_stride,
            params.ring_capacity,
            nullptr,
            0,
            0};
  }
}

// The sequence whose cache a batch entry uses.
template <typename Params>
__device__ __forceinline__ int sequence_of(const Params& params, int batch_idx) {
  return params.sequence == nullptr ? batch_idx : params.sequence[batch_idx];
}

}  // namespace attune
