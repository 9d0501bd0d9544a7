// Copies of query rows and KV tiles from global memory into swizzled shared-memory tiles with
// cp.async.
#pragma once

#include "templates/config.h"
#include "templates/device/kv_rows.cuh"
#include "templates/device/mma.cuh"
#include "templates/device/ptx.cuh"

namespace attune {

// Starts the copy of columns [kColumn, kColumn + kColumns) of the rows of the keys [first, first +
// kTokens) into `tile` [kTokens, kTileColumns]. Keys outside [begin, end) are never read and become
// zeros: memory beyond the sequence may hold NaN, and 0 * NaN would poison the output. All kThreads
// threads of the CTA take part.
template <int kTokens, int kTileColumns, int kColumn, int kColumns, int kThreads, KvLayout kLayout>
__device__ __forceinline__ void copy_kv_tile(uint32 tile, const uint16* buffer,
                                             const KvRows<kLayout>& rows, int first, int begin,
                                             int end, int thread) {
  constexpr int kChunks = kColumns / kChunkElements;
  static_assert(kThreads % kChunks == 0, "a thread keeps its column over the rows");
  constexpr int kRowsPerPass = kThreads / kChunks;
  constexpr int kPasses = (kTokens + kRowsPerPass - 1) / kRowsPerPass;
  const int chunk = kColumn / kChunkElements + thread % kChunks;
  const int row = thread / kChunks;
  if (kTokens < kRowsPerPass && row >= kTokens) return;
  const uint16* const column = buffer + chunk * kChunkElements;
  // Of this thread's rows, counted in keys.
  const int num_hidden = begin - first - row;
  const int num_visible = end - first - row;
  // Rows at equal distances need one address. A page has a multiple of kMinPageSize rows, so that
  // many rows need one look-up; with few rows to a thread it looks every one's page up.
  constexpr int kGroups = (kTokens - 1 + kMinPageSize - 1) / kMinPageSize + 1;
  constexpr bool kGrouped = is_paged(kLayout) && kGroups < kPasses;
  const uint16* from = nullptr;
  int until_wrap = 0;
  int in_group = 0;
  int64 group[kGrouped ? kGroups : 1];  // where the thread's first row would lie in a group's page
  if constexpr (kGrouped) {
    from = column;
    in_group = (first + row) & (kMinPageSize - 1);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int at = first + row - in_group + i * kMinPageSize;
      const bool seen = at < end && at + kMinPageSize > begin;
      group[i] = seen ? rows.offset(at) + (in_group - i * kMinPageSize) * rows.token_stride : 0;
    }
  } else if constexpr (!is_paged(kLayout)) {
    const int position = first + row;
    const int slot = kLayout == KvLayout::kRing ? first % rows.ring_capacity + row : position;
    from = column + rows.first + slot * rows.token_stride;
    // A tile crosses the end of the ring once at most: a ring has at least kMinRingCapacity rows.
    static_assert(kTokens <= kMinRingCapacity, "a tile is no longer than the shortest ring");
    until_wrap = rows.ring_capacity - slot;
  }
  const int64 wrap = rows.ring_capacity * rows.token_stride;
  const int64 step = kRowsPerPass * rows.token_stride;
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int offset = pass * kRowsPerPass;
    if (kTokens % kRowsPerPass != 0 && row + offset >= kTokens) break;
    const bool visible = offset < num_visible && offset >= num_hidden;
    const uint16* source;
    if constexpr (kGrouped) {
      const int i = offset / kMinPageSize;
      const bool in_next = in_group + offset % kMinPageSize >= kMinPageSize;
      source = from + (in_next ? group[i + 1] : group[i]);
      from += step;
    } else if constexpr (is_paged(kLayout)) {
      source = visible ? column + rows.offset(first + row + offset) : column;
    } else {
      const bool wraps = kLayout == KvLayout::kRing && offset >= until_wrap;
      source = wraps ? from - wrap : from;
      from += step;
    }
    cp_async_16(tile + swizzled_offset<kTileColumns>(row + offset, chunk), source,
                visible ? 16 : 0);
  }
}

// Starts the copy of kRows query rows into `tile` [kRows, kHeadDim]. `row_offset` has each row's
// offset from `base` in elements, negative for a padding row, which becomes zeros.
template <int kRows, int kHeadDim, int kThreads>
__device__ __forceinline__ void copy_query_rows(uint32 tile, const uint16* base,
                                                const int64* row_offset, int thread) {
  constexpr int kChunks = kHeadDim / kChunkElements;
  constexpr int kRowsPerPass = kThreads / kChunks;
  const int chunk = thread % kChunks;
#pragma unroll 4
  for (int row = thread / kChunks; row < kRows; row += kRowsPerPass) {
    const int64 offset = row_offset[row];
    const uint16* from = base + (offset < 0 ? 0 : offset) + chunk * kChunkElements;
    cp_async_16(tile + swizzled_offset<kHeadDim>(row, chunk), from, offset < 0 ? 0 : 16);
  }
}

}  // namespace attune
