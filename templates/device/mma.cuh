// Swizzled bf16 tiles in shared memory and the fragments that mma.m16n8k16 takes from them.
#pragma once

#include "templates/device/ptx.cuh"

namespace attune {

constexpr int kChunkElements = 8;  // 16 bytes: one row of an 8x8 matrix, one cp.async
constexpr int kMmaDepth = 16;      // k of one mma
constexpr int kPanelColumns = 64;  // 128 bytes: the columns over which the swizzle repeats
constexpr int kPanelBytes = kPanelColumns * 2;
constexpr int kPanelSteps = kPanelColumns / kMmaDepth;
constexpr int kPanelChunks = kPanelColumns / kChunkElements;

// Byte offset of a 16-byte chunk in a [rows, kColumns] bf16 tile. XOR with the row spreads the 8
// rows of a matrix over all banks, so ldmatrix and cp.async are conflict-free for every kColumns
// >= 64.
template <int kColumns>
__device__ __forceinline__ uint32 swizzled_offset(int row, int chunk) {
  static_assert(kColumns % kPanelColumns == 0, "a row is whole 128-byte lines");
  return static_cast<uint32>(row * kColumns * 2 + ((chunk ^ (row & 7)) << 4));
}

// A lane's row of an ldmatrix and its four chunk addresses inside one panel. Rows that are a
// multiple of 8 further down and later panels are constant offsets, so a whole loop over k needs no
// address arithmetic.
template <int kColumns, int kSteps = kPanelSteps>
struct FragmentRow {
  uint32 step[kSteps];

  // `row` and `chunk` are the lane's; the chunk of step i is chunk + i * kChunksPerStep.
  template <int kChunksPerStep>
  __device__ __forceinline__ void locate(uint32 tile, int row, int chunk) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      step[i] = tile + swizzled_offset<kColumns>(row, chunk + i * kChunksPerStep);
    }
  }
};

// Row and chunk of a lane for the A fragment of 16 rows x 16 columns.
__device__ __forceinline__ int a_fragment_row(int lane) { return lane & 15; }
__device__ __forceinline__ int a_fragment_chunk(int lane) { return lane >> 4; }

// B fragments of 16 tokens x 16 columns of a K tile (rows are tokens): {b0, b1} of tokens 0..7,
// then 8..15.
__device__ __forceinline__ int b_fragment_row(int lane) { return (lane & 7) + (lane >> 4) * 8; }
__device__ __forceinline__ int b_fragment_chunk(int lane) { return (lane >> 3) & 1; }

// B fragments of 8 tokens x 32 columns of a K tile: {b0, b1} of columns 0..15, then 16..31.
__device__ __forceinline__ int b_wide_fragment_row(int lane) { return lane & 7; }
__device__ __forceinline__ int b_wide_fragment_chunk(int lane) { return lane >> 3; }

// B fragments of 16 tokens x 16 columns of a V tile, by ldmatrix.trans (rows are tokens, the k of
// this product): {b0, b1} of columns 0..7, then 8..15. The same lanes as an A fragment.
__device__ __forceinline__ int v_fragment_row(int lane) { return lane & 15; }
__device__ __forceinline__ int v_fragment_chunk(int lane) { return lane >> 4; }

}  // namespace attune
