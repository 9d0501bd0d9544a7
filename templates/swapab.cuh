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
#include "templates/split_work.cuh"
#include "templates/stream_merge.cuh"
#include "templates/swapped_scores.cuh"

namespace attune {

template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout, bool kSoftcap>
struct SwapAb {
  using T = StreamTraits<kConfig, kHeadDim, kLayout>;
  using Scores = SwappedScores<T, kHeadDim, kSoftcap>;
  using Merge = StreamMerge<T, kHeadDim, ScoreScale<kSoftcap>>;
  static constexpr int BLOCK_N = T::BLOCK_N;
  static constexpr int kRowTiles = Scores::kRowTiles;
  static constexpr int kTokenTiles = Scores::kTokenTiles;
  static constexpr int kAhead = Scores::kAhead;
  static constexpr int kColumnTiles = kHeadDim / kMmaRows;  // m of the output

  StreamTiles<T, kLayout>& tiles;
  Scores& qk;
  int lane = threadIdx.x % kWarpSize;
  float output[kColumnTiles][kRowTiles][4];

  __device__ __forceinline__ void start() {
    qk.start();
    clear_output(output);
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
        const float new_max = fmaxf(qk.row_max[n][i], qk.tile_max(n, i));
        changed |= new_max != qk.row_max[n][i];
        rescale[n][i] = qk.exponentiate(n, i, new_max);
      }
#pragma unroll
      for (int m = 0; m < kTokenTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) probabilities[m][n][half] = qk.fragment(m, n, half);
      }
    }
    // Once the maxima have settled nothing changes.
    if (__any_sync(0xffffffffu, changed)) rescale_output(output, rescale);
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
    qk.multiply(tiles.key_tile(step));
    if constexpr (!T::kUnified) tiles.release_keys(step);
    if (qk.needs_mask(tile)) qk.mask(tile);
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
        const float sum = column_sum(qk.row_sum[n][i]);
        if (lane / 4 == 0) {
          merge.stats()[tiles.stream * T::BLOCK_M + qk.row_of(n, i)] =
              make_float2(qk.row_max[n][i], sum);
        }
      }
      float* const to = merge.output(tiles.stream, qk.row_of(n, 0), lane / 4);
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
  typename Cta::Scores qk{p, work, smem, scale};
  Cta cta{tiles, qk};
  tiles.start_early();
  cta.start();
  qk.locate_queries();
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  if (!has_work && !in_cluster) return;
  if (threadIdx.x == 0 && has_work) publish_plan<kConfig.block_m>(p, work);
  qk.receive_queries(tiles);
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
