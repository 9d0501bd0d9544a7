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
// Smem      slots | barriers | row maxima and sums per stream; at the end the outputs of the
//           streams, where the slots were.
// Sync      a warp alone with its stream waits for its copies and for nothing else. Warps that
//           share one arrive at the barrier of a slot they have read; the first of them waits for
//           the others before it fills the slot again. One __syncthreads before the streams are
//           merged.
// Clusters  with merges_in_cluster the CTAs of a row block's splits are one, and merge their results
//           through distributed shared memory: no workspace, no combine.
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
  static constexpr int BLOCK_N = T::BLOCK_N;
  static constexpr int kRowTiles = T::kWarpRows / kMmaTokens;  // n of the mma
  static constexpr int kTokenTiles = T::BLOCK_N / kMmaRows;    // m of the scores
  static constexpr int kQuerySteps = kHeadDim / kMmaDepth;     // k of the scores
  static constexpr int kColumnTiles = kHeadDim / kMmaRows;     // m of the output
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
  float row_sum[kRowTiles][2];  // over this thread's tokens
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

  // The B fragments of the queries: lane l has columns 2 * (l % 4) + {0, 1} and those 8 further of
  // row l / 4.
  __device__ __forceinline__ void load_queries() {
    const uint16* const queries = static_cast<const uint16*>(p.q) +
                                  work.batch_idx * p.q_batch_stride +
                                  static_cast<int64>(work.kv_head) * p.group_size * p.q_head_stride;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const int packed = work.first_row + first_row + n * kMmaTokens + lane / 4;
      const bool valid = packed < work.num_rows;
      const int token = packed / p.group_size;
      const int head = packed - token * p.group_size;
      const uint16* const row =
          queries + (valid ? token * p.q_token_stride + head * p.q_head_stride : 0) + lane % 4 * 2;
#pragma unroll
      for (int step = 0; step < kQuerySteps; ++step) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint16* const at = row + step * kMmaDepth + i * 8;
          query[n][step][i] = valid ? *reinterpret_cast<const uint32*>(at) : 0u;
        }
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
#pragma unroll
    for (int step = 0; step < kQuerySteps; ++step) {
#pragma unroll
      for (int m = 0; m < kTokenTiles; ++m) {
        uint32 a[4];
        ldmatrix_x4(a, row.step[step % kPanelSteps] + step / kPanelSteps * T::kPanelTileBytes +
                           m * kMmaRows * kPanelBytes);
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
          mma_m16n8k16(scores[m][n][step % kChains], a, query[n][step][0], query[n][step][1]);
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
#pragma unroll
      for (int column = 0; column < kColumnTiles; ++column) {
        uint32 a[4];
        ldmatrix_x4_trans(a, row.step[column % kPanelSteps] +
                                 column / kPanelSteps * T::kPanelTileBytes +
                                 m * kMmaRows * kPanelBytes);
        if constexpr (kMasked) {
          a[0] &= readable[0];
          a[1] &= readable[0];
          a[2] &= readable[1];
          a[3] &= readable[1];
        }
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
          mma_m16n8k16(output[column][n], a, probabilities[m][n][0], probabilities[m][n][1]);
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

  // [streams][BLOCK_M][T::kOutputPitch]
  __device__ __forceinline__ float* stream_output(int stream, int row) const {
    return reinterpret_cast<float*>(smem) + (stream * T::BLOCK_M + row) * T::kOutputPitch;
  }
  // [streams][BLOCK_M]: maximum and sum of a row
  __device__ __forceinline__ float2* stream_stats() const {
    return reinterpret_cast<float2*>(smem + T::kSmemStats);
  }

  // This stream's results to shared memory. Nobody copies any more, and all have read.
  __device__ __forceinline__ void publish() {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float sum = column_sum(row_sum[n][i]);
        const int row = row_of(n, i);
        if (lane / 4 == 0) {
          stream_stats()[tiles.stream * T::BLOCK_M + row] = make_float2(row_max[n][i], sum);
        }
        float* const to = stream_output(tiles.stream, row) + lane / 4;
#pragma unroll
        for (int m = 0; m < kColumnTiles; ++m) {
          to[m * kMmaRows] = output[m][n][i];
          to[m * kMmaRows + 8] = output[m][n][i + 2];
        }
      }
    }
  }

  // Merges the streams' results of a row. Writes it, where the CTAs of a cluster have the row's
  // other splits to the place of the first stream: not normalized, to be merged with theirs. All
  // lanes of a warp.
  __device__ __forceinline__ void merge_streams(int row, int num_streams) {
    float new_max = negative_infinity();
    for (int stream = 0; stream < num_streams; ++stream) {
      new_max = fmaxf(new_max, stream_stats()[stream * T::BLOCK_M + row].x);
    }
    const float subtract = scale.subtrahend(new_max);
    float sum = 0.0f;
    float factors[T::kStreams];
#pragma unroll
    for (int stream = 0; stream < T::kStreams; ++stream) {
      factors[stream] = 0.0f;
      if (stream < num_streams) {
        const float2 stats = stream_stats()[stream * T::BLOCK_M + row];
        factors[stream] = scale.rescale(stats.x, subtract);
        sum += stats.y * factors[stream];
      }
    }
    const RowTarget to = row_target<T::BLOCK_M, kHeadDim>(p, work, row, work.num_splits <= 1);
    const float inverse = sum > 0.0f ? rcp(sum) : 0.0f;
    if (p.merges_in_cluster == 0) {
      if (lane == 0) to.write_lse(sum > 0.0f ? subtract + lg2(sum) : negative_infinity());
    } else {
      __syncwarp();  // all lanes have read the first stream's
      if (lane == 0) stream_stats()[row] = make_float2(new_max, sum);
    }
#pragma unroll
    for (int i = 0; i < kHeadDim / 4; i += kWarpSize) {
      const int column = (i + lane) * 4;
      if (column >= kHeadDim) break;
      float value[4] = {};
#pragma unroll
      for (int stream = 0; stream < T::kStreams; ++stream) {
        if (stream >= num_streams) break;
        const float4 part = *reinterpret_cast<const float4*>(stream_output(stream, row) + column);
        value[0] += part.x * factors[stream];
        value[1] += part.y * factors[stream];
        value[2] += part.z * factors[stream];
        value[3] += part.w * factors[stream];
      }
      if (p.merges_in_cluster == 0) {
        to.write_4(output_column(column), value, inverse);
      } else {
        *reinterpret_cast<float4*>(stream_output(0, row) + column) =
            make_float4(value[0], value[1], value[2], value[3]);
      }
    }
  }

  // Where a column of V goes in a row of the output.
  __device__ __forceinline__ int output_column(int column) const {
    return T::kUnified ? unified_value_dim(column) : column;
  }

  // Merges what the CTAs of the cluster have of the rows; each of them writes some columns of some
  // rows. Every CTA comes here, also one without work.
  __device__ __forceinline__ void merge_cluster(int num_rows) {
    constexpr int kSliceColumns = combine_columns(kHeadDim);
    constexpr int kSlices = kHeadDim / kSliceColumns;
    const int cluster_size = p.split_cap;
    const int rank = static_cast<int>(cluster_ctarank());
    const int num_parts = max(work.num_splits, 1);
    barrier_cluster_arrive();
    barrier_cluster_wait();
    for (int slice = warp * cluster_size + rank; slice < num_rows * kSlices;
         slice += T::kWarps * cluster_size) {
      const int row = slice / kSlices;
      const int column = slice % kSlices * kSliceColumns + lane * 4;
      const bool has_column = lane * 4 < kSliceColumns;
      // Lane i looks at part i.
      const uint32 stats = smem_address(stream_stats() + row);
      float part_max = negative_infinity();
      float part_sum = 0.0f;
      if (lane < num_parts) {
        part_max = __int_as_float(ld_shared_cluster(mapa(stats, lane)));
        part_sum = __int_as_float(ld_shared_cluster(mapa(stats + 4, lane)));
      }
      float new_max = part_max;
#pragma unroll
      for (int i = 1; i < kMaxClusterSplits; i *= 2) {
        new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, i));
      }
      new_max = __shfl_sync(0xffffffffu, new_max, 0);
      const float subtract = scale.subtrahend(new_max);
      const float factor = scale.rescale(part_max, subtract);
      float sum = part_sum * factor;
#pragma unroll
      for (int i = 1; i < kMaxClusterSplits; i *= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, i);
      }
      sum = __shfl_sync(0xffffffffu, sum, 0);
      // All parts are under way at once: a remote read takes as long as one from L2.
      uint32 part[kMaxClusterSplits][4];
      const uint32 values = smem_address(stream_output(0, row) + (has_column ? column : 0));
#pragma unroll
      for (int i = 0; i < kMaxClusterSplits; ++i) {
        if (i < num_parts) ld_shared_cluster_v4(part[i], mapa(values, i));
      }
      float value[4] = {};
#pragma unroll
      for (int i = 0; i < kMaxClusterSplits; ++i) {
        const float of_part = __shfl_sync(0xffffffffu, factor, i);
        if (i >= num_parts) continue;
#pragma unroll
        for (int j = 0; j < 4; ++j) value[j] += of_part * __int_as_float(part[i][j]);
      }
      const RowTarget to = row_target<T::BLOCK_M, kHeadDim>(p, work, row, true);
      const bool seen = sum > 0.0f;
      if (has_column) to.write_4(output_column(column), value, seen ? rcp(sum) : 0.0f);
      if (slice % kSlices == 0 && lane == 0) {
        to.write_lse(seen ? subtract + lg2(sum) : negative_infinity());
      }
    }
    // Nobody ends while others may read its memory.
    barrier_cluster_arrive();
    barrier_cluster_wait();
  }
};

template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout, bool kSoftcap, bool kInvariant>
__device__ __forceinline__ void swapab(const AttentionParams& p) {
  using T = StreamTraits<kConfig, kHeadDim, kLayout>;
  static_assert(!kInvariant, "the streams of a row depend on the config");
  extern __shared__ __align__(1024) unsigned char smem[];
  if (p.overlap == 0) griddepcontrol_wait();
  SplitWork work;
  const bool has_work = find_work<kConfig, kHeadDim, kInvariant>(p, work);
  StreamTiles<T, kLayout> tiles(p, work, smem_address(smem), has_work);
  tiles.start_early();
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  if (!has_work && p.merges_in_cluster == 0) return;
  tiles.start_late();
  SwapAb<kConfig, kHeadDim, kLayout, kSoftcap> cta{p, work, tiles, smem,
                                                   ScoreScale<kSoftcap>(p.sm_scale, p.softcap)};
  cta.start();
  cta.load_queries();
  for (int step = 0; step < tiles.num_steps; ++step) cta.run_step(step);
  const int num_streams = min(T::kStreams, tiles.num_tiles);
  __syncthreads();
  if (tiles.stream < num_streams) cta.publish();
  __syncthreads();
  const int num_rows = min(T::BLOCK_M, work.num_rows - work.first_row);
  for (int row = cta.warp; row < num_rows; row += T::kWarps) cta.merge_streams(row, num_streams);
  if (p.merges_in_cluster != 0) cta.merge_cluster(num_rows);
}

}  // namespace attune
