// Computes  attention of one KV split of one sequence and KV head for up to BLOCK_M packed query
//           rows, as splitkv.cuh does, with the operands of both products swapped:
//           scores^T [tokens, rows] = K Q^T and output^T [head_dim, rows] = V^T P^T. Eight rows
//           are enough to fill an mma, and P goes from one product to the other in registers.
// Grid      (num_row_blocks * split_cap, num_kv_heads, batch), row blocks fastest.
// Threads   num_warps * 32. A warp owns kWarpRows rows, all head_dim columns of them and a stream
//           of tiles; the warps of the other rows of BLOCK_M share the stream.
// Tiles     K and V [BLOCK_N, head_dim] in panels of 64 columns with the 128-byte swizzle, by bulk
//           tensor copies; num_stages slots per stream. Unified rows: one tile a stage. Tile i of
//           the split belongs to stream i % kStreams. Queries stay in registers.
// Smem      slots | Q | barriers | row maxima, sums and factors per stream | row offsets; at the end
//           the outputs of the streams, where the slots were.
// Sync      a warp alone with its stream waits for its copies and for nothing else. Warps that
//           share one arrive at the barrier of a slot they have read; the first of them waits for
//           the others before it fills the slot again. One __syncthreads before the streams are
//           merged.
// Clusters  with merges_in_cluster the CTAs of a row block's splits are one, and merge their results
//           behind its barrier: no combine.
// Overlap   keys that were there before the query tokens are under way before griddepcontrol.wait.
// Limits    Family::static_limits. Rows that no query sees are read up to the buffer's capacity and
//           whatever they hold changes nothing.
// Source    swapped operands: flashinfer-ai/flashinfer pull request 4906 and DeepGEMM use them on
//           wgmma; online softmax (Milakov and Gimelshein, 2018).
#pragma once

#include "templates/config.h"
#include "templates/device/mma.cuh"
#include "templates/device/ptx.cuh"
#include "templates/device/ptx_hopper.cuh"
#include "templates/device/softmax.cuh"
#include "templates/device/stream_tiles.cuh"
#include "templates/params.h"
#include "templates/split_plan.h"
#include "templates/split_work.cuh"
#include "templates/stream_merge.cuh"

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

template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout, bool kSoftcap>
struct SwapAb {
  using T = StreamTraits<kConfig, kHeadDim, kLayout>;
  using Merge = StreamMerge<T, kHeadDim, ScoreScale<kSoftcap>>;
  static constexpr int BLOCK_N = T::BLOCK_N;
  static constexpr int kRowTiles = T::kWarpRows / kMmaTokens;  // n of the mma
  static constexpr int kTokenTiles = T::BLOCK_N / kMmaRows;    // m of the scores
  static constexpr int kQuerySteps = kHeadDim / kMmaDepth;     // k of the scores
  static constexpr int kColumnTiles = kHeadDim / kMmaRows;     // m of the output
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
  StreamTiles<T, kLayout>& tiles;
  unsigned char* smem;
  ScoreScale<kSoftcap> scale;
  int lane = threadIdx.x % kWarpSize;
  int warp = threadIdx.x / kWarpSize;
  int first_row;  // of the warp, inside the block

  // This thread's rows are 2 * (lane % 4) + {0, 1} of every row tile; its tokens lane / 4 and
  // lane / 4 + 8 of every token tile.
  KeyRange limits[kRowTiles][2];
  KeyRange unmasked;  // keys that every row of the warp sees
  float row_max[kRowTiles][2];
  float row_sum[kRowTiles][2];       // over this thread's tokens
  int64 query_offset[kQueryCopies];  // of this thread's chunks; -1: a padding row
  uint32 query[kRowTiles][kQuerySteps][2];
  float scores[kTokenTiles][kRowTiles][kChains][4];
  float output[kColumnTiles][kRowTiles][4];

  __device__ __forceinline__ int row_of(int tile, int i) const {
    return first_row + tile * kMmaTokens + lane % 4 * 2 + i;
  }

  // Keys that a packed row sees; padding sees none.
  __device__ __forceinline__ KeyRange limits_of(int row) const {
    const int packed = work.first_row + row;
    if (packed >= work.num_rows) return {0, 0};
    const int token = packed / p.group_size;
    const KeyRange keys = visible_keys(work.kv_len, p.seqlen_q, token, token, p.window, p.causal);
    return {keys.begin, min(keys.end, work.end)};
  }

  __device__ __forceinline__ void start() {
    first_row = warp % T::kRowGroups * T::kWarpRows;
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
#pragma unroll
    for (int m = 0; m < kColumnTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) output[m][n][i] = 0.0f;
      }
    }
  }

  // Where this thread's chunks of the queries are, which is long arithmetic: before the wait.
  __device__ __forceinline__ void locate_queries() {
#pragma unroll
    for (int i = 0; i < kQueryCopies; ++i) {
      const int packed = work.first_row + query_row(i);
      const int token = packed / p.group_size;
      const int head = work.kv_head * p.group_size + packed - token * p.group_size;
      query_offset[i] = packed < work.num_rows
                            ? work.batch_idx * p.q_batch_stride + token * p.q_token_stride +
                                  head * p.q_head_stride
                            : -1;
    }
  }
  // Starts the copy of all rows of the block to shared memory, panels [BLOCK_M rows, 128 bytes].
  __device__ __forceinline__ void start_queries() const {
    const int chunk = threadIdx.x % kQueryChunks;
    const uint16* const queries = static_cast<const uint16*>(p.q) + chunk * kChunkElements;
#pragma unroll
    for (int i = 0; i < kQueryCopies; ++i) {
      const int row = query_row(i);
      if (row >= T::BLOCK_M) break;
      const int64 at = query_offset[i];
      const uint32 to = chunk / kPanelChunks * (T::BLOCK_M * kPanelBytes) + row * kPanelBytes +
                        ((chunk % kPanelChunks ^ (row & 7)) << 4);
      cp_async_16(smem_address(smem) + T::kSmemQuery + to, queries + (at < 0 ? 0 : at),
                  at < 0 ? 0 : 16);
    }
    cp_async_commit_group();
  }
  __device__ __forceinline__ int query_row(int i) const {
    return i * kQueryRowsPerPass + static_cast<int>(threadIdx.x) / kQueryChunks;
  }

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

  __device__ __forceinline__ void add_scores(uint32 k_tile) {
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

  __device__ __forceinline__ void mask_scores(const StreamTile<BLOCK_N>& tile) {
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

  // New maxima, P as B fragments of the second product, row sums; scales the output.
  __device__ __forceinline__ void make_probabilities(
      uint32 (&probabilities)[kTokenTiles][kRowTiles][2]) {
    float rescale[kRowTiles][2];
    bool changed = false;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float tile_max = negative_infinity();
#pragma unroll
        for (int m = 0; m < kTokenTiles; ++m) {
          tile_max = fmaxf(tile_max, fmaxf(scores[m][n][0][i], scores[m][n][0][i + 2]));
        }
        const float new_max = fmaxf(row_max[n][i], column_max(tile_max));
        const float subtract = scale.subtrahend(new_max);
        rescale[n][i] = scale.rescale(row_max[n][i], subtract);
        changed |= new_max != row_max[n][i];
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
        row_sum[n][i] = __fmaf_rn(row_sum[n][i], rescale[n][i], sum);
      }
#pragma unroll
      for (int m = 0; m < kTokenTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float* const pair = &scores[m][n][0][2 * half];
          probabilities[m][n][half] = movmatrix_trans(cvt_bf16x2(pair[0], pair[1]));
        }
      }
    }
    // Once the maxima have settled nothing changes.
    if (!__any_sync(0xffffffffu, changed)) return;
#pragma unroll
    for (int m = 0; m < kColumnTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) output[m][n][i] *= rescale[n][i % 2];
      }
    }
  }

  // output^T += V^T P^T. kMasked: tokens outside of the keys that some query sees may be anything,
  // NaN too, and count as 0.
  template <bool kMasked>
  __device__ __forceinline__ void add_values(
      uint32 v_tile, const StreamTile<BLOCK_N>& tile,
      const uint32 (&probabilities)[kTokenTiles][kRowTiles][2]) {
    PanelRow row;
    row.locate(v_tile, value_fragment_row(lane), value_fragment_chunk(lane));
#pragma unroll
    for (int m = 0; m < kTokenTiles; ++m) {
      // Of the lane's tokens 2 * (lane % 4) + {0, 1}, and those 8 further.
      uint32 readable[2] = {0xffffffffu, 0xffffffffu};
      if constexpr (kMasked) {
        const int first = tile.begin + m * kMmaRows + lane % 4 * 2;
        readable[0] = tile.readable_pair(first);
        readable[1] = tile.readable_pair(first + 8);
      }
      uint32 a[kAhead][4];
      const auto load = [&](int column) {
        ldmatrix_x4_trans(a[column % kAhead], row.step[column % kPanelSteps] +
                                                  column / kPanelSteps * T::kPanelTileBytes +
                                                  m * kMmaRows * kPanelBytes);
      };
#pragma unroll
      for (int column = 0; column < kAhead - 1; ++column) load(column);
#pragma unroll
      for (int column = 0; column < kColumnTiles; ++column) {
        if (column + kAhead - 1 < kColumnTiles) load(column + kAhead - 1);
        uint32(&v)[4] = a[column % kAhead];
        if constexpr (kMasked) {
          v[0] &= readable[0];
          v[1] &= readable[0];
          v[2] &= readable[1];
          v[3] &= readable[1];
        }
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
          mma_m16n8k16(output[column][n], v, probabilities[m][n][0], probabilities[m][n][1]);
        }
      }
    }
  }

  __device__ __forceinline__ void run_step(int step) {
    const StreamTile<BLOCK_N> tile = tiles.tile(step);
    tiles.wait_for_keys(step);
    add_scores(tiles.key_tile(step));
    if constexpr (!T::kUnified) tiles.release_keys(step);
    const bool masked =
        !tile.is_whole() || tile.begin < unmasked.begin || tile.begin + BLOCK_N > unmasked.end;
    if (masked) mask_scores(tile);
    uint32 probabilities[kTokenTiles][kRowTiles][2];
    make_probabilities(probabilities);
    if constexpr (!T::kUnified) tiles.wait_for_values(step);
    if (tile.is_whole()) {
      add_values<false>(tiles.value_tile(step), tile, probabilities);
    } else {
      add_values<true>(tiles.value_tile(step), tile, probabilities);
    }
    tiles.release_values(step);
  }

  // This stream's results to shared memory. Nobody copies any more, and all have read.
  __device__ __forceinline__ void publish(const Merge& merge) const {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float sum = column_sum(row_sum[n][i]);
        if (lane / 4 == 0) {
          merge.stats()[tiles.stream * T::BLOCK_M + row_of(n, i)] = make_float2(row_max[n][i], sum);
        }
      }
      float* const to = merge.output(tiles.stream, row_of(n, 0), lane / 4);
#pragma unroll
      for (int m = 0; m < kColumnTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // 8 columns are 2 places further in each part
          *reinterpret_cast<float2*>(to + (m * 4 + half * 2) * kMmaTokens) =
              make_float2(output[m][n][2 * half], output[m][n][2 * half + 1]);
        }
      }
    }
  }
};

template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout, bool kSoftcap, bool kInvariant>
__device__ __forceinline__ void swapab(const AttentionParams& p) {
  using T = StreamTraits<kConfig, kHeadDim, kLayout>;
  using Cta = SwapAb<kConfig, kHeadDim, kLayout, kSoftcap>;
  static_assert(!kInvariant, "the streams of a row depend on the config");
  extern __shared__ __align__(1024) unsigned char smem[];
  const bool in_cluster = p.merges_in_cluster != 0;
  if (p.overlap == 0) griddepcontrol_wait();
  SplitWork work;
  const bool has_work = find_work<kConfig, kHeadDim, kInvariant>(p, work);
  StreamTiles<T, kLayout> tiles(p, work, smem_address(smem), has_work);
  const ScoreScale<kSoftcap> scale(p.sm_scale, p.softcap);
  Cta cta{p, work, tiles, smem, scale};
  tiles.start_early();
  cta.start();
  cta.locate_queries();
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  if (!has_work && !in_cluster) return;
  cta.start_queries();
  tiles.start_late();
  cp_async_wait_group<0>();
  __syncthreads();
  cta.load_queries();
  for (int step = 0; step < tiles.num_steps; ++step) cta.run_step(step);

  const typename Cta::Merge merge{p, work, smem, scale, min(T::kStreams, tiles.num_tiles)};
  __syncthreads();
  if (tiles.stream < merge.num_streams) cta.publish(merge);
  __syncthreads();
  if (has_work) merge.weigh();
  __syncthreads();
  if (has_work) merge.write();
  if (in_cluster) merge.merge_cluster();
}

}  // namespace attune
