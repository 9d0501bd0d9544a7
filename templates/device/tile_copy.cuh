// Copies of query rows and KV tiles from global memory into swizzled shared-memory tiles with
// cp.async.
#pragma once

#include "templates/config.h"
#include "templates/device/mma.cuh"
#include "templates/device/ptx.cuh"

namespace attune {

// Keys of one KV head of one sequence, by position.
struct KvSource {
  const uint16* base;  // of the sequence and head
  int64 token_stride;  // elements
  int ring_capacity;   // rows; used by the ring layout only
};

// Starts the copy of columns [kColumn, kColumn + kColumns) of the keys [first, first + kTokens)
// into `tile` [kTokens, kHeadDim]. Keys from `end` on are never read and become zeros: memory
// beyond the sequence may hold NaN, and 0 * NaN would poison the output. All kThreads threads of
// the CTA take part.
template <int kTokens, int kHeadDim, int kColumn, int kColumns, int kThreads, KvLayout kLayout>
__device__ __forceinline__ void copy_kv_tile(uint32 tile, const KvSource& source, int first,
                                             int end, int thread) {
  constexpr int kChunks = kColumns / kChunkElements;
  static_assert(kThreads % kChunks == 0, "a thread keeps its column over the rows");
  constexpr int kRowsPerPass = kThreads / kChunks;
  constexpr int kPasses = (kTokens + kRowsPerPass - 1) / kRowsPerPass;
  const int chunk = kColumn / kChunkElements + thread % kChunks;
  const int first_row = thread / kChunks;
  const int first_slot = kLayout == KvLayout::kRing ? first % source.ring_capacity : first;
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int row = first_row + pass * kRowsPerPass;
    if (kTokens % kRowsPerPass != 0 && row >= kTokens) break;
    const bool visible = first + row < end;
    int slot = visible ? first_slot + row : 0;
    if (kLayout == KvLayout::kRing) {
      // More than one turn only when the ring is shorter than a tile.
      while (slot >= source.ring_capacity) slot -= source.ring_capacity;
    }
    const uint16* from = source.base + slot * source.token_stride + chunk * kChunkElements;
    cp_async_16(tile + swizzled_offset<kHeadDim>(row, chunk), from, visible ? 16 : 0);
  }
}

// Query rows of one KV head of one sequence: packed row r is token r / group_size, head r %
// group_size.
struct QuerySource {
  const uint16* base;  // of the sequence and the first head of the group
  int64 token_stride;  // elements
  int64 head_stride;
  int group_size;
};

// Starts the copy of the packed rows [first, first + kRows) into `tile` [kRows, kHeadDim]; rows
// from `end` on become zeros.
template <int kRows, int kHeadDim, int kThreads>
__device__ __forceinline__ void copy_query_rows(uint32 tile, const QuerySource& source, int first,
                                                int end, int thread) {
  constexpr int kChunks = kHeadDim / kChunkElements;
  constexpr int kRowsPerPass = kThreads / kChunks;
  const int chunk = thread % kChunks;
#pragma unroll 4
  for (int row = thread / kChunks; row < kRows; row += kRowsPerPass) {
    const bool valid = first + row < end;
    const int packed = valid ? first + row : 0;
    const int token = packed / source.group_size;
    const int head = packed - token * source.group_size;
    const uint16* from = source.base + token * source.token_stride + head * source.head_stride +
                         chunk * kChunkElements;
    cp_async_16(tile + swizzled_offset<kHeadDim>(row, chunk), from, valid ? 16 : 0);
  }
}

}  // namespace attune
