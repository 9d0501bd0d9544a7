// What a warpgroup has of its 64 rows: the online softmax of score tiles that lie in wgmma's
// accumulators, and the sums of its columns of the output.
#pragma once

#include "templates/config.h"
#include "templates/device/mma.cuh"
#include "templates/device/ptx.cuh"
#include "templates/device/ptx_hopper.cuh"
#include "templates/device/softmax.cuh"
#include "templates/device/wgmma_tile.cuh"
#include "templates/split_plan.h"

namespace attune {

constexpr int kWarpGroupRows = 64;

// A thread has two rows, 8 apart; four lanes share them.
template <int BLOCK_N, bool kSoftcap>
struct RowSoftmax {
  // A new maximum is taken as the reference only if it is this much above the old one, in log2
  // units: P stays below 2^8, which bf16 holds as well as 1, and the sums are hardly ever rescaled.
  static constexpr float kSlack = 8.0f;
  static constexpr int kTokenTiles = BLOCK_N / kMmaTokens;
  static constexpr int kTokenSteps = BLOCK_N / kMmaDepth;

  ScoreScale<kSoftcap> scale;
  KeyRange limits[2];  // keys that the rows see
  KeyRange unmasked;   // keys that every row of the CTA sees
  float reference[2];
  float row_sum[2];
  float factor[2];  // on what was summed up before the last tile
  float scores[BLOCK_N / 2];
  uint32 probabilities[kTokenSteps][4];

  __device__ __forceinline__ RowSoftmax(float sm_scale, float softcap) : scale(sm_scale, softcap) {}

  __device__ __forceinline__ void reset() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      reference[half] = negative_infinity();
      row_sum[half] = 0.0f;
    }
  }

  // Scores to probabilities, in place. Of the tile's keys those in `keys` are there.
  __device__ __forceinline__ void make_probabilities(int tile_begin, const KeyRange& keys) {
    if constexpr (kSoftcap) {
#pragma unroll
      for (int i = 0; i < BLOCK_N / 2; ++i) scores[i] = scale.keep(scores[i]);
    }
    if (tile_begin < max(unmasked.begin, keys.begin) ||
        tile_begin + BLOCK_N > min(unmasked.end, keys.end)) {
      mask(tile_begin, keys);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float tile_max = negative_infinity();
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        tile_max = fmaxf(tile_max, fmaxf(scores[4 * n + 2 * half], scores[4 * n + 2 * half + 1]));
      }
      tile_max = quad_max(tile_max);
      // False where neither has seen a key.
      const bool grown = (tile_max - reference[half]) * scale.to_log2 > kSlack;
      const float next = grown ? tile_max : reference[half];
      const float subtract = scale.subtrahend(next);
      factor[half] = grown ? scale.rescale(reference[half], subtract) : 1.0f;
      reference[half] = next;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        float& p0 = scores[4 * n + 2 * half];
        float& p1 = scores[4 * n + 2 * half + 1];
        p0 = scale.probability(p0, subtract);
        p1 = scale.probability(p1, subtract);
        sum += p0 + p1;
      }
      row_sum[half] = row_sum[half] * factor[half] + sum;
    }
  }
  __device__ __forceinline__ void make_probabilities(int tile_begin) {
    make_probabilities(tile_begin, {0, 0x7fffffff});
  }
  // As an A operand in registers is.
  __device__ __forceinline__ void pack_probabilities() {
#pragma unroll
    for (int k = 0; k < kTokenSteps; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        probabilities[k][i] = cvt_bf16x2(scores[8 * k + 2 * i], scores[8 * k + 2 * i + 1]);
      }
    }
  }

 private:
  __device__ __forceinline__ void mask(int tile_begin, const KeyRange& keys) {
    const int first = tile_begin + static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int begin = max(limits[half].begin, keys.begin) - first;
      const int end = min(limits[half].end, keys.end) - first;
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = n * kMmaTokens + i;
          if (key < begin || key >= end) scores[4 * n + 2 * half + i] = negative_infinity();
        }
      }
    }
  }
};

// Sums of kColumns columns.
template <int kColumns>
struct RowSums {
  float sums[kColumns / 2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sums[i] = 0.0f;
  }
  __device__ __forceinline__ void rescale(float factor0, float factor1) {
    if (__all_sync(0xffffffffu, factor0 == 1.0f && factor1 == 1.0f)) return;
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sums[i] *= i / 2 % 2 == 0 ? factor0 : factor1;
  }
  // The rows of the warp that begin at row `warp_row` of panels, two numbers in 32 bits as
  // narrow(low, high, half) says.
  template <typename Narrow>
  __device__ __forceinline__ void collect(uint32 panels, int panel_bytes, int warp_row,
                                          const Narrow& narrow) const {
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll
    for (int n = 0; n < kColumns / kMmaTokens; n += 2) {
      uint32 four[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        four[i] = narrow(sums[4 * n + 2 * i], sums[4 * n + 2 * i + 1], i % 2);
      }
      const int chunk = n % kPanelChunks + a_fragment_chunk(lane);
      stmatrix_x4(panels + n / kPanelChunks * panel_bytes +
                      panel_offset(warp_row + a_fragment_row(lane), chunk),
                  four);
    }
  }
};

// `rows` rows of 256 columns from panels to memory, a row at a time, a lane eight columns of it.
// Lane i has the offset of row i.
__device__ __forceinline__ void store_panel_rows(const unsigned char* panels, int panel_bytes,
                                                 int first_row, int rows, uint16* out,
                                                 int64 offset) {
  const int lane = threadIdx.x % kWarpSize;
  const unsigned char* const panel = panels + lane / kPanelChunks * panel_bytes;
#pragma unroll 4
  for (int i = 0; i < rows; ++i) {
    const int64 at = __shfl_sync(0xffffffffu, offset, i);
    *reinterpret_cast<uint4*>(out + at) =
        *reinterpret_cast<const uint4*>(panel + panel_offset(first_row + i, lane % kPanelChunks));
  }
}

}  // namespace attune
