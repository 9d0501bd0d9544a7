// Computes  attention of one KV split of one sequence and KV head for up to BLOCK_M packed query
//           rows, with swapped operands as swapab.cuh does, for splits of few tiles: the warps share
//           the keys of a round for the scores and the columns for the output, so that nothing is
//           left to merge in the CTA.
// Grid      (num_row_blocks * split_cap, num_kv_heads, batch), row blocks fastest.
// Threads   num_warps * 32. A round is a tile of each warp: of its own tile a warp computes the
//           scores of all rows, of all tiles then the output in head_dim / num_warps columns.
// Tiles     K and V [BLOCK_N, head_dim] in panels of 64 columns with the 128-byte swizzle, by bulk
//           tensor copies; num_stages slots a warp. Unified rows: one tile a stage. Tile i of the
//           split belongs to warp i % num_warps. Queries stay in registers.
// Smem      slots | Q | barriers | row maxima, then sums per warp | P as fragments.
// Sync      a warp waits for the copies of its own tile. Per round two __syncthreads: the first
//           publishes the maxima, and all have read the P and the V of the round before; the second
//           publishes P, that V is there, and in the last round the sums. With one stage a third one
//           frees the V slots.
// Clusters  with merges_in_cluster the CTAs of a row block's splits are one, and merge their results
//           behind its barrier: no combine.
// Overlap   keys that were there before the query tokens are under way before griddepcontrol.wait.
// Limits    Family::static_limits. Rows that no query sees are read up to the buffer's capacity and
//           whatever they hold changes nothing.
// Source    warps that share P and own columns: deepseek-ai/FlashMLA, whose two warpgroups do so;
//           online softmax (Milakov and Gimelshein, 2018).
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
struct OneRound {
  using T = OneRoundTraits<kConfig, kHeadDim, kLayout>;
  using Scores = SwappedScores<T, kHeadDim, kSoftcap>;
  using Merge = StreamMerge<T, kHeadDim, ScoreScale<kSoftcap>>;
  static constexpr int BLOCK_N = T::BLOCK_N;
  static constexpr int kWarps = T::kWarps;
  static constexpr int kRowTiles = Scores::kRowTiles;
  static constexpr int kTokenTiles = Scores::kTokenTiles;
  static constexpr int kRoundTiles = kWarps * kTokenTiles;  // k of the output
  static constexpr int kColumns = kHeadDim / kWarps;        // of a warp
  static constexpr int kColumnTiles = kColumns / kMmaRows;  // m
  static constexpr int kPanels = kHeadDim / kPanelColumns;  // of the values
  static constexpr int kAhead = Scores::kAhead;
  static constexpr int kTilesAhead = 3;
  static_assert(kColumns % kMmaRows == 0, "a warp has whole fragments of columns");

  StreamTiles<T, kLayout>& tiles;
  Scores& qk;
  int num_rounds = (tiles.num_tiles + kWarps - 1) / kWarps;
  int lane = threadIdx.x % kWarpSize;
  int warp = threadIdx.x / kWarpSize;
  PanelRow values;  // of this thread in the warp's first panel of V, from the start of a V tile
  // In the workspace: this thread's first row and column, and its row of lse_row().
  int64 partial_at;
  int64 lse_partial_at;
  float output[kColumnTiles][kRowTiles][4];

  __device__ __forceinline__ void start() {
    qk.start();
    const int column = warp * kColumns;
    values.locate(column / kPanelColumns * T::kPanelTileBytes, value_fragment_row(lane),
                  value_fragment_chunk(lane) + column % kPanelColumns / kChunkElements);
    const SplitWork& work = qk.work;
    const int64 first_row =
        partial_row(work.kv_head, qk.p.num_row_blocks, work.row_block, qk.p.num_slots,
                    work.first_slot + work.split, T::BLOCK_M, 0);
    partial_at = (first_row + qk.row_of(0, 0)) * kHeadDim + Merge::output_column(column) + lane / 4;
    lse_partial_at = first_row + lse_row();
    compute_here(partial_at);
    compute_here(lse_partial_at);
    clear_output(output);
  }
  // The lanes of a column hold the same rows: the first four see to the lse of the even ones, the
  // next four to that of the odd ones.
  __device__ __forceinline__ int lse_row() const {
    return lane / 8 * kMmaTokens + lane % 4 * 2 + lane / 4 % 2;
  }

  // A number of each warp for each of its rows, [BLOCK_M / 2][warps] pairs of rows.
  __device__ __forceinline__ float2* stats(int of, int n) const {
    return reinterpret_cast<float2*>(qk.smem + of) + (n * (kMmaTokens / 2) + lane % 4) * kWarps;
  }
  // B fragments of 16 tokens and 8 rows, [tiles of the round][kRowTiles][lanes]
  __device__ __forceinline__ uint2* probabilities(int tile, int n) const {
    return reinterpret_cast<uint2*>(qk.smem + T::kSmemProbabilities) +
           (tile * kRowTiles + n) * kWarpSize + lane;
  }

  // The scores of the warp's tile, of which it may have none, and their maxima for the others.
  __device__ __forceinline__ void make_scores(int round, const StreamTile<BLOCK_N>& tile) {
    if (round < tiles.num_steps) {
      tiles.wait_for_keys(round);
      qk.multiply(tiles.key_tile(round));
      if constexpr (!T::kUnified) tiles.release_keys(round);
      if (qk.needs_mask(tile)) qk.mask(tile);
    } else {
#pragma unroll
      for (int m = 0; m < kTokenTiles; ++m) {
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) qk.scores[m][n][0][i] = negative_infinity();
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const float2 most = make_float2(qk.tile_max(n, 0), qk.tile_max(n, 1));
      if (lane < 4) stats(T::kSmemMaxima, n)[warp] = most;
    }
  }

  // New maxima, the warp's P and what it has of the sums; scales the output.
  __device__ __forceinline__ void make_probabilities(int round) {
    float rescale[kRowTiles][2];
    bool changed = false;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      float new_max[2] = {qk.row_max[n][0], qk.row_max[n][1]};
#pragma unroll
      for (int of = 0; of < kWarps; of += 2) {
        const float4 two = *reinterpret_cast<const float4*>(stats(T::kSmemMaxima, n) + of);
        new_max[0] = fmaxf(new_max[0], fmaxf(two.x, two.z));
        new_max[1] = fmaxf(new_max[1], fmaxf(two.y, two.w));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        changed |= new_max[i] != qk.row_max[n][i];
        rescale[n][i] = qk.exponentiate(n, i, new_max[i]);
      }
#pragma unroll
      for (int m = 0; m < kTokenTiles; ++m) {
        *probabilities(warp * kTokenTiles + m, n) =
            make_uint2(qk.fragment(m, n, 0), qk.fragment(m, n, 1));
      }
    }
    if (round == num_rounds - 1) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
        const float2 sum = make_float2(column_sum(qk.row_sum[n][0]), column_sum(qk.row_sum[n][1]));
        if (lane < 4) stats(T::kSmemSums, n)[warp] = sum;
      }
    }
    if (round > 0 && __any_sync(0xffffffffu, changed)) rescale_output(output, rescale);
  }

  // Rows of V outside of the keys that some query sees may be anything, NaN too, and the other warps
  // multiply them by 0: they become zeros. So does a tile that this warp has not.
  __device__ __forceinline__ void clear_unreadable(int round, const StreamTile<BLOCK_N>& tile) {
    const bool has_tile = round < tiles.num_steps;
    if (has_tile && tile.is_whole()) return;
    constexpr int kRowsPerPass = kWarpSize / kPanelChunks;
    unsigned char* const to = qk.smem + (tiles.value_tile(round) - smem_address(qk.smem)) +
                              lane * static_cast<int>(sizeof(uint4));
#pragma unroll 1
    for (int row = 0; row < BLOCK_N; row += kRowsPerPass) {
      const int key = tile.begin + row + lane / kPanelChunks;
      if (has_tile && key >= tile.keys.begin && key < tile.keys.end) continue;
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        *reinterpret_cast<uint4*>(to + panel * T::kPanelTileBytes + row * kPanelBytes) =
            make_uint4(0, 0, 0, 0);
      }
    }
    fence_proxy_async();  // a later copy fills the slot again
  }

  // output^T += V^T P^T in the warp's columns, of all tiles of the round.
  __device__ __forceinline__ void add_values(int round) {
    // Fragments of P are fetched some tiles ahead, those of V some products.
    uint32 b[kTilesAhead][kRowTiles][2];
    const auto load_probabilities = [&](int tile) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
        const uint2 pair = *probabilities(tile, n);
        b[tile % kTilesAhead][n][0] = pair.x;
        b[tile % kTilesAhead][n][1] = pair.y;
      }
    };
    const uint32 first = tiles.value_tile_of(0, round);
    uint32 a[kAhead][4];
    const auto load = [&](int i) {
      const int tile = i / kColumnTiles;
      const int column = i % kColumnTiles;
      ldmatrix_x4_trans(a[i % kAhead], first + values.step[column % kPanelSteps] +
                                           column / kPanelSteps * T::kPanelTileBytes +
                                           tile / kTokenTiles * (T::kStages * T::kSlotBytes) +
                                           tile % kTokenTiles * (kMmaRows * kPanelBytes));
    };
#pragma unroll
    for (int tile = 0; tile < kTilesAhead - 1; ++tile) load_probabilities(tile);
#pragma unroll
    for (int i = 0; i < kAhead - 1; ++i) load(i);
#pragma unroll
    for (int i = 0; i < kRoundTiles * kColumnTiles; ++i) {
      const int tile = i / kColumnTiles;
      if (i % kColumnTiles == 0 && tile + kTilesAhead - 1 < kRoundTiles) {
        load_probabilities(tile + kTilesAhead - 1);
      }
      if (i + kAhead - 1 < kRoundTiles * kColumnTiles) load(i + kAhead - 1);
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
        mma_m16n8k16(output[i % kColumnTiles][n], a[i % kAhead], b[tile % kTilesAhead][n][0],
                     b[tile % kTilesAhead][n][1]);
      }
    }
  }

  __device__ __forceinline__ void run_round(int round) {
    const StreamTile<BLOCK_N> tile = tiles.tile(round);
    make_scores(round, tile);
    __syncthreads();
    if constexpr (T::kStages > 1) {
      if (round > 0) tiles.release_values(round - 1);
    }
    make_probabilities(round);
    if (!T::kUnified && round < tiles.num_steps) tiles.wait_for_values(round);
    clear_unreadable(round, tile);
    __syncthreads();
    add_values(round);
    if constexpr (T::kStages == 1) {
      if (round == num_rounds - 1) return;
      __syncthreads();
      tiles.release_values(round);
    }
  }

  // Writes the rows: fp32 to the workspace where there are other splits, else bf16 to the caller.
  __device__ __forceinline__ void write() {
    const SplitWork& work = qk.work;
    const int num_rows = min(T::BLOCK_M, work.num_rows - work.first_row);
    float lse = negative_infinity();
    float inverse[kRowTiles][2];
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      float sum[2] = {0.0f, 0.0f};
      if (num_rounds > 0) {
#pragma unroll
        for (int of = 0; of < kWarps; of += 2) {
          const float4 two = *reinterpret_cast<const float4*>(stats(T::kSmemSums, n) + of);
          sum[0] += two.x + two.z;
          sum[1] += two.y + two.w;
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool seen = sum[i] > 0.0f;
        inverse[n][i] = seen ? rcp(sum[i]) : 0.0f;
        // As a maximum: chosen by an `if`, the numbers would be an array in memory.
        const float of_row =
            seen ? qk.scale.subtrahend(qk.row_max[n][i]) + lg2(sum[i]) : negative_infinity();
        lse = fmaxf(lse, lane / 4 == 2 * n + i ? of_row : negative_infinity());
      }
    }
    rescale_output(output, inverse);
    const bool has_lse = warp == 0 && lse_row() < num_rows;
    if (work.num_splits > 1) {
      if (has_lse) qk.p.lse_partial[lse_partial_at] = lse;
      write_partial(num_rows);
    } else {
      if (has_lse) row_target<T::BLOCK_M, kHeadDim>(qk.p, work, lse_row(), true).write_lse(lse);
      write_out(num_rows);
    }
  }

 private:
  // Eight lanes write eight columns of a row, a sector.
  __device__ __forceinline__ void write_partial(int num_rows) const {
    const int column = warp * kColumns;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (qk.row_of(n, i) >= num_rows) continue;
#pragma unroll
        for (int m = 0; m < kColumnTiles; ++m) {
          const int panel = m / kPanelSteps * kPanelColumns;
          float* const to = static_cast<float*>(qk.p.o_partial) + partial_at +
                            (n * kMmaTokens + i) * kHeadDim + m % kPanelSteps * kMmaRows +
                            Merge::output_column(column + panel) - Merge::output_column(column);
          to[0] = output[m][n][i];
          to[8] = output[m][n][i + 2];
        }
      }
    }
  }

  __device__ __forceinline__ void write_out(int num_rows) const {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const int row = n * kMmaTokens + lane / 4;
      const int64 offset =
          row_target<T::BLOCK_M, kHeadDim>(qk.p, qk.work, min(row, num_rows - 1), true).offset;
      uint16* const to = static_cast<uint16*>(qk.p.out) + offset + lane % 4 * 2;
#pragma unroll
      for (int m = 0; m < kColumnTiles; ++m) {
        const int column = Merge::output_column(warp * kColumns + m * kMmaRows);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float* const pair = &output[m][n][2 * half];
          const uint32 value = movmatrix_trans(cvt_bf16x2(pair[0], pair[1]));
          if (row < num_rows) *reinterpret_cast<uint32*>(to + column + half * 8) = value;
        }
      }
    }
  }
};

template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout, bool kSoftcap, bool kInvariant>
__device__ __forceinline__ void oneround(const AttentionParams& p) {
  using T = OneRoundTraits<kConfig, kHeadDim, kLayout>;
  using Cta = OneRound<kConfig, kHeadDim, kLayout, kSoftcap>;
  static_assert(!kInvariant, "the rounds of a row depend on the config");
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
  for (int round = 0; round < cta.num_rounds; ++round) cta.run_round(round);
  if (has_work) cta.write();
  if (in_cluster) typename Cta::Merge{p, work, smem, scale, 0}.merge_cluster();
}

}  // namespace attune
