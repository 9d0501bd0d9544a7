// The first half of kernels whose operands are swapped: scores^T [tokens, rows] = K Q^T of a warp's
// rows and one tile of keys, their masks, and the probabilities that are made of them.
#pragma once

#include "templates/config.h"
#include "templates/device/mma.cuh"
#include "templates/device/ptx.cuh"
#include "templates/device/softmax.cuh"
#include "templates/device/stream_tiles.cuh"
#include "templates/params.h"
#include "templates/split_plan.h"
#include "templates/split_work.cuh"

namespace attune {

// Reductions over the eight lanes that share a column of an mma accumulator.
__device__ __forceinline__ float column_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 4));
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 8));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 16));
}
__device__ __forceinline__ float column_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 4);
  x += __shfl_xor_sync(0xffffffffu, x, 8);
  return x + __shfl_xor_sync(0xffffffffu, x, 16);
}

// Output accumulators of a thread: zeros; and times a factor for each of its rows.
template <int kColumnTiles, int kRowTiles>
__device__ __forceinline__ void clear_output(float (&output)[kColumnTiles][kRowTiles][4]) {
#pragma unroll
  for (int m = 0; m < kColumnTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) output[m][n][i] = 0.0f;
    }
  }
}
template <int kColumnTiles, int kRowTiles>
__device__ __forceinline__ void rescale_output(float (&output)[kColumnTiles][kRowTiles][4],
                                               const float (&rescale)[kRowTiles][2]) {
#pragma unroll
  for (int m = 0; m < kColumnTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) output[m][n][i] *= rescale[n][i % 2];
    }
  }
}

// Queries stay in registers. T describes the CTA's slots and warps, as StreamTraits does.
template <typename T, int kHeadDim, bool kSoftcap>
struct SwappedScores {
  static constexpr int BLOCK_N = T::BLOCK_N;
  static constexpr int kRowTiles = T::kWarpRows / kMmaTokens;  // n of the mma
  static constexpr int kTokenTiles = T::BLOCK_N / kMmaRows;    // m
  static constexpr int kQuerySteps = kHeadDim / kMmaDepth;     // k
  static constexpr int kAhead = 4;                             // fragments of a warp under way
  static constexpr int kQueryChunks = kHeadDim / kChunkElements;
  static constexpr int kQueryRowsPerPass = T::kWarps * kWarpSize / kQueryChunks;
  static constexpr int kQueryCopies = (T::BLOCK_M + kQueryRowsPerPass - 1) / kQueryRowsPerPass;
  static_assert(kQueryRowsPerPass > 0, "a pass is whole rows");
  // A chain of dependent mma takes 24 cycles each where 6 would do: the sums over head_dim are
  // spread over this many accumulators.
  static constexpr int kChains = kTokenTiles * kRowTiles >= 4 ? 1 : 4 / (kTokenTiles * kRowTiles);

  const AttentionParams& p;
  const SplitWork& work;
  unsigned char* smem;
  ScoreScale<kSoftcap> scale;
  int lane = threadIdx.x % kWarpSize;
  int warp = threadIdx.x / kWarpSize;
  int first_row = warp % T::kRowGroups * T::kWarpRows;  // of the warp, inside the block

  // This thread's rows are 2 * (lane % 4) + {0, 1} of every row tile; its tokens lane / 4 and
  // lane / 4 + 8 of every token tile.
  KeyRange limits[kRowTiles][2];
  KeyRange unmasked;  // keys that every row of the warp sees
  float row_max[kRowTiles][2];
  float row_sum[kRowTiles][2];             // over this thread's tokens
  const uint16* query_from[kQueryCopies];  // this thread's chunks; null: nothing to copy
  uint32 query_to[kQueryCopies];
  uint32 query[kRowTiles][kQuerySteps][2];
  float scores[kTokenTiles][kRowTiles][kChains][4];

  __device__ __forceinline__ int row_of(int tile, int i) const {
    return first_row + tile * kMmaTokens + lane % 4 * 2 + i;
  }

  // Keys that a packed row sees; padding sees none.
  __device__ __forceinline__ KeyRange limits_of(int row) const {
    const int packed = work.first_row + row;
    if (packed >= work.num_rows) return {0, 0};
    const int token = token_of(p, packed);
    const KeyRange keys = visible_keys(work.kv_len, p.seqlen_q, token, token, p.window, p.causal);
    return {keys.begin, min(keys.end, work.end)};
  }

  __device__ __forceinline__ void start() {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        limits[n][i] = limits_of(row_of(n, i));
        row_max[n][i] = negative_infinity();
        row_sum[n][i] = 0.0f;
      }
    }
    // Limits grow with the row; a block without padding in this warp may need no masks.
    const KeyRange first = limits_of(first_row);
    const KeyRange last =
        limits_of(min(first_row + T::kWarpRows, work.num_rows - work.first_row) - 1);
    unmasked = {last.begin, first.end};
  }

  // Where this thread's chunks of the queries are and go, which is long arithmetic: before the wait.
  // In shared memory: panels [BLOCK_M rows, 128 bytes]. Padding rows are zeros.
  __device__ __forceinline__ void locate_queries() {
    const int chunk = threadIdx.x % kQueryChunks;
    const uint16* const queries = static_cast<const uint16*>(p.q) + chunk * kChunkElements;
#pragma unroll
    for (int i = 0; i < kQueryCopies; ++i) {
      const int row = i * kQueryRowsPerPass + static_cast<int>(threadIdx.x) / kQueryChunks;
      const int to = T::kSmemQuery + chunk / kPanelChunks * (T::BLOCK_M * kPanelBytes) +
                     row * kPanelBytes + ((chunk % kPanelChunks ^ (row & 7)) << 4);
      const int packed = work.first_row + row;
      query_from[i] = nullptr;
      query_to[i] = smem_address(smem) + to;
      if (row >= T::BLOCK_M) continue;
      if (packed >= work.num_rows) {
        *reinterpret_cast<uint4*>(smem + to) = make_uint4(0, 0, 0, 0);
        continue;
      }
      const int token = token_of(p, packed);
      const int head = work.kv_head * p.group_size + packed - token * p.group_size;
      query_from[i] = queries + work.batch_idx * p.q_batch_stride + token * p.q_token_stride +
                      head * p.q_head_stride;
      compute_here(query_from[i]);
    }
  }

  // The queries come into registers, and meanwhile the tiles of the first round that could not come
  // early are asked for.
  template <typename Tiles>
  __device__ __forceinline__ void receive_queries(Tiles& tiles) {
#pragma unroll
    for (int i = 0; i < kQueryCopies; ++i) {
      if (query_from[i] != nullptr) cp_async_16(query_to[i], query_from[i]);
    }
    cp_async_commit_group();
    tiles.start_late();
    cp_async_wait_group<0>();
    __syncthreads();  // every warp sees all queries, and the barriers of the tiles
    load_queries();
  }

  // The scores of a tile, in the first chain.
  __device__ __forceinline__ void multiply(uint32 k_tile) {
#pragma unroll
    for (int m = 0; m < kTokenTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int chain = 0; chain < kChains; ++chain) {
#pragma unroll
          for (int i = 0; i < 4; ++i) scores[m][n][chain][i] = 0.0f;
        }
      }
    }
    PanelRow row;
    row.locate(k_tile, a_fragment_row(lane), a_fragment_chunk(lane));
    // Fragments of some steps are on their way while those before are multiplied: alone on its
    // part of the SM, a warp would wait for every one.
    uint32 a[kAhead][kTokenTiles][4];
    const auto load = [&](int step) {
#pragma unroll
      for (int m = 0; m < kTokenTiles; ++m) {
        ldmatrix_x4(a[step % kAhead][m], row.step[step % kPanelSteps] +
                                             step / kPanelSteps * T::kPanelTileBytes +
                                             m * kMmaRows * kPanelBytes);
      }
    };
#pragma unroll
    for (int step = 0; step < kAhead - 1; ++step) load(step);
#pragma unroll
    for (int step = 0; step < kQuerySteps; ++step) {
      if (step + kAhead - 1 < kQuerySteps) load(step + kAhead - 1);
#pragma unroll
      for (int m = 0; m < kTokenTiles; ++m) {
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
          mma_m16n8k16(scores[m][n][step % kChains], a[step % kAhead][m], query[n][step][0],
                       query[n][step][1]);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kTokenTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& sum = scores[m][n][0][i];
#pragma unroll
          for (int chain = 1; chain < kChains; ++chain) sum += scores[m][n][chain][i];
          sum = scale.keep(sum);
        }
      }
    }
  }

  __device__ __forceinline__ bool needs_mask(const StreamTile<BLOCK_N>& tile) const {
    return !tile.is_whole() || tile.begin < unmasked.begin || tile.begin + BLOCK_N > unmasked.end;
  }
  __device__ __forceinline__ void mask(const StreamTile<BLOCK_N>& tile) {
#pragma unroll
    for (int m = 0; m < kTokenTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int position = tile.begin + m * kMmaRows + i / 2 * 8 + lane / 4;
          const KeyRange& limit = limits[n][i % 2];
          if (position < max(limit.begin, tile.keys.begin) ||
              position >= min(limit.end, tile.keys.end)) {
            scores[m][n][0][i] = negative_infinity();
          }
        }
      }
    }
  }

  // The largest score of a row in the tile.
  __device__ __forceinline__ float tile_max(int n, int i) const {
    float most = negative_infinity();
#pragma unroll
    for (int m = 0; m < kTokenTiles; ++m) {
      most = fmaxf(most, fmaxf(scores[m][n][0][i], scores[m][n][0][i + 2]));
    }
    return column_max(most);
  }

  // Makes probabilities of a row's scores, with the largest of all its keys so far. Returns the
  // factor on what has been summed up below another maximum.
  __device__ __forceinline__ float exponentiate(int n, int i, float new_max) {
    const float subtract = scale.subtrahend(new_max);
    const float rescale = scale.rescale(row_max[n][i], subtract);
    row_max[n][i] = new_max;
    float sum = 0.0f;
#pragma unroll
    for (int m = 0; m < kTokenTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& score = scores[m][n][0][i + 2 * half];
        score = scale.probability(score, subtract);
        sum += score;
      }
    }
    row_sum[n][i] = __fmaf_rn(row_sum[n][i], rescale, sum);
    return rescale;
  }

  // Probabilities as the B fragment of output^T = V^T P^T: tokens 2 * (lane % 4) + {0, 1}, and those
  // 8 further in the other half, of row lane / 4.
  __device__ __forceinline__ uint32 fragment(int m, int n, int half) const {
    const float* const pair = &scores[m][n][0][2 * half];
    return movmatrix_trans(cvt_bf16x2(pair[0], pair[1]));
  }

 private:
  // The B fragments of the warp's rows: lane l has columns 2 * (l % 4) + {0, 1} and those 8 further
  // of row l / 4.
  __device__ __forceinline__ void load_queries() {
    const int row = first_row + (lane & 7);
    PanelRow at;
    at.locate(smem_address(smem) + T::kSmemQuery, row, lane / 8);
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int step = 0; step < kQuerySteps; step += 2) {
        uint32 b[4];
        ldmatrix_x4(b, at.step[step % kPanelSteps] +
                           step / kPanelSteps * (T::BLOCK_M * kPanelBytes) +
                           n * kMmaTokens * kPanelBytes);
        query[n][step][0] = b[0];
        query[n][step][1] = b[1];
        query[n][step + 1][0] = b[2];
        query[n][step + 1][1] = b[3];
      }
    }
  }
};

}  // namespace attune
