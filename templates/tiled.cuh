// Computes  attention of a block of packed query rows of a prefill chunk (token-major, head-minor:
//           all q heads of the KV head share every K/V tile) over all keys that they see, and
//           writes out and lse.
// Grid      (num_row_blocks, num_kv_heads, batch); the rows that see the most keys start first.
// Threads   num_warps * 32.
// Tiles     Q [BLOCK_M, head_dim] resident; K and V [BLOCK_N, head_dim], num_stages slots each;
//           fp32 sums. Unified rows: one tile [BLOCK_N, kUnifiedColumns] a stage, K and V alike.
// Warps     a grid of row groups x column groups (tiled_warp_grid). A warp scores its rows against
//           its share of the tile's tokens and sums up its share of the output's columns. With one
//           column group P never leaves the registers; else the warps of a row group exchange the
//           row maxima and P, and nothing else: other row groups run ahead or behind.
// Smem      Q, at the end the output | K slots | V slots | P | row maxima (at the end sums) per
//           column group. The last two with several column groups only; P of unified rows lies in
//           the columns of its slot that the scores have used up, where it fits.
// Sync      per tile, by all warps:
//           A  K(tile) has arrived (several stages: V(tile) too), the slot of V(tile-1) is free
//           B  one stage: the slot of K(tile) is free
//           C  one stage: V(tile) has arrived
//           and by the warps of a row group, where there are several, in the place of B and C:
//           B  the row maxima are visible (P in the slot: all warps, K(tile) has been read)
//           C  P is visible
// Chunks    do not matter: tiles start at multiples of BLOCK_N, a tile changes no bit of a row that
//           sees none of its keys, and the order of a row's sums depends on BLOCK_N and the warp
//           grid alone. A sequence prefilled whole, in chunks or token by token by one config and
//           with one split of heads has the same bits.
// Limits    Family::static_limits. Keys that no row of the block sees are never read.
// Source    FlashAttention-2 (Dao, 2023); online softmax (Milakov and Gimelshein, 2018).
#pragma once

#include "templates/config.h"
#include "templates/device/mma.cuh"
#include "templates/device/ptx.cuh"
#include "templates/device/tile_copy.cuh"
#include "templates/params.h"
#include "templates/row_work.cuh"
#include "templates/tiled_rows.cuh"

namespace attune {

// Compile-time shape of the kernel and the byte offsets of its shared memory.
template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout>
struct TiledTraits {
  static constexpr int BLOCK_M = kConfig.block_m;
  static constexpr int BLOCK_N = kConfig.block_n;
  static constexpr int kStages = kConfig.num_stages;
  static constexpr int kWarps = kConfig.num_warps;
  static constexpr int kThreads = kWarps * kWarpSize;

  static constexpr WarpGrid kGrid = tiled_warp_grid(kConfig);
  static constexpr int kColumnGroups = kGrid.tokens;
  static constexpr int kGroupThreads = kColumnGroups * kWarpSize;
  static constexpr int kWarpRows = BLOCK_M / kGrid.rows;
  static constexpr int kRowTiles = kWarpRows / kMmaRows;
  static constexpr int kWarpTokens = BLOCK_N / kColumnGroups;  // scored by a warp
  static constexpr int kTokenTiles = kWarpTokens / kMmaTokens;
  static constexpr int kWarpColumns = kHeadDim / kColumnGroups;  // of the output
  static constexpr int kColumnTiles = kWarpColumns / kMmaTokens;
  // The first column of the eight that are tile `n` of a warp's share.
  static constexpr int column_of(int column_group, int n) {
    return column_group * kWarpColumns + n * kMmaTokens;
  }

  static constexpr bool kUnified = is_unified(kLayout);
  static constexpr bool kSharesP = kColumnGroups > 1;
  static constexpr bool kPInSlot = tiled_p_in_slot(kConfig, kLayout);
  // Unified rows in one slot are fetched when their slot is free, and nothing runs meanwhile.
  static constexpr bool kLoadsInPlace = kUnified && kStages == 1;

  static constexpr int kTileColumns = kv_row_columns(kLayout, kHeadDim);
  static constexpr int kTileBytes = BLOCK_N * kTileColumns * kBytesPerElement;
  static constexpr int kPitch = probability_pitch(kConfig) * kBytesPerElement;
  static constexpr int kSmemK = BLOCK_M * kHeadDim * kBytesPerElement;
  // A unified row's V part starts inside of its K tile.
  static constexpr int kSmemV =
      kSmemK + (kUnified ? kUnifiedRotated * kBytesPerElement : kStages * kTileBytes);
  static constexpr int kSmemP = kSmemK + (kUnified ? 1 : 2) * kStages * kTileBytes;
  static constexpr int kSmemRowMax = kSmemP + (kSharesP && !kPInSlot ? BLOCK_M * kPitch : 0);
  static constexpr int kSmemBytes = kSmemRowMax + (kSharesP ? kColumnGroups * BLOCK_M * 4 : 0);

  static_assert(kSmemBytes == tiled_smem_bytes(kConfig, kHeadDim, kLayout),
                "one formula for the size");
  static_assert(kGrid.rows > 0, "the warps divide the tiles");
  static_assert(kWarpColumns % kOutputColumnsPerWarp == 0, "a warp owns whole V fragments");
  static_assert(kTokenTiles % 2 == 0, "K fragments are 16 tokens");
  static_assert(kThreads % (kHeadDim / kChunkElements) == 0, "a pass copies whole rows");
  static_assert((BLOCK_N & (BLOCK_N - 1)) == 0 && (kWarps & (kWarps - 1)) == 0,
                "passes of a copy, tiles and pages divide each other");
};

template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout, bool kSoftcap>
struct Tiled : TiledRows<TiledTraits<kConfig, kHeadDim, kLayout>, kHeadDim, kLayout, kSoftcap> {
  using T = TiledTraits<kConfig, kHeadDim, kLayout>;
  static constexpr int BLOCK_N = T::BLOCK_N;

  // The slot of a tile's K; slots of V are as far apart.
  __device__ __forceinline__ int slot(int tile) const {
    return T::kStages == 1 ? 0 : tile % T::kStages * T::kTileBytes;
  }

  __device__ __forceinline__ void start() {
    this->start_rows();
    if constexpr (T::kStages > 1) {
#pragma unroll
      for (int stage = 0; stage < T::kStages - 1; ++stage) {
        copy_keys(stage);
        copy_values(stage);
        cp_async_commit_group();
      }
    } else {
      if constexpr (!T::kLoadsInPlace) copy_keys(0);
      cp_async_commit_group();
    }
    this->clear_rows();
  }

  template <int kColumn, int kColumns>
  __device__ __forceinline__ void copy_tile(int slots, const void* buffer,
                                            const KvRows<kLayout>& rows, int tile) {
    if (tile >= this->num_tiles) return;
    copy_kv_tile<BLOCK_N, T::kTileColumns, kColumn, kColumns, T::kThreads, kLayout>(
        this->tile_address(slots) + slot(tile), static_cast<const uint16*>(buffer), rows,
        this->begin + tile * BLOCK_N, this->work.keys.begin, this->work.keys.end, this->thread);
  }
  __device__ __forceinline__ void copy_keys(int tile) {
    copy_tile<0, kHeadDim>(T::kSmemK, this->p.k, this->key, tile);
  }
  // Of a unified row the columns that the scores have no use for.
  __device__ __forceinline__ void copy_values(int tile) {
    if constexpr (T::kUnified) {
      copy_tile<kHeadDim, T::kTileColumns - kHeadDim>(T::kSmemK, this->p.k, this->key, tile);
    } else {
      copy_tile<0, kHeadDim>(T::kSmemV, this->p.v, this->value, tile);
    }
  }

  __device__ __forceinline__ void add_values(int tile) {
    uint32 a[T::kRowTiles][4];
    this->template add_products<T::kTileColumns, 0, T::kWarpColumns>(
        this->tile_address(T::kSmemV) + slot(tile),
        this->column_group * (T::kWarpColumns / kChunkElements),
        [&](int step) -> const uint32(&)[T::kRowTiles][4] {
#pragma unroll
          for (int m = 0; m < T::kRowTiles; ++m) {
            this->load_probabilities(a[m], slot(tile), m, step);
          }
          return a;
        });
  }

  __device__ __forceinline__ void run_tile(int tile) {
    // A
    if constexpr (T::kStages > 1) {
      cp_async_wait_group<T::kStages - 2>();
      __syncthreads();
      copy_keys(tile + T::kStages - 1);
      copy_values(tile + T::kStages - 1);
      cp_async_commit_group();
    } else if constexpr (T::kLoadsInPlace) {
      __syncthreads();
      copy_keys(tile);
      copy_values(tile);
      cp_async_commit_group();
      cp_async_wait_group<0>();
      __syncthreads();
    } else {
      cp_async_wait_group<0>();
      __syncthreads();
      copy_values(tile);
      cp_async_commit_group();
    }
    const uint32 keys = this->tile_address(T::kSmemK) + slot(tile);
    this->clear_scores();
    this->template add_scores<T::kTileColumns, 0, kHeadDim>(keys);
    this->keep_scores(this->begin + tile * BLOCK_N);
    float tile_max[T::kRowTiles][2];
    this->find_maxima(tile_max);
    // B
    if constexpr (T::kStages == 1 && !T::kLoadsInPlace) {
      __syncthreads();
      copy_keys(tile + 1);
      cp_async_commit_group();
    } else if constexpr (T::kPInSlot) {
      __syncthreads();
    } else if constexpr (T::kSharesP) {
      this->sync_row_group();
    }
    this->make_probabilities(tile_max);
    if constexpr (T::kSharesP) this->show_probabilities(slot(tile));
    // C
    if constexpr (T::kStages == 1 && !T::kLoadsInPlace) {
      cp_async_wait_group<1>();
      __syncthreads();
    } else if constexpr (T::kSharesP) {
      this->sync_row_group();
    }
    add_values(tile);
  }
};

template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout, bool kSoftcap, bool kInvariant>
__device__ __forceinline__ void tiled(const AttentionParams& p) {
  static_assert(!kInvariant, "keys are summed up in one go, not in chunks");
  extern __shared__ __align__(128) unsigned char smem[];
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const RowWork work = row_work<kConfig.block_m>(p, blockIdx.x, blockIdx.y, blockIdx.z);
  Tiled<kConfig, kHeadDim, kLayout, kSoftcap> cta{
      {p, work, smem, ScoreScale<kSoftcap>(p.sm_scale, p.softcap)}};
  cta.start();
  for (int tile = 0; tile < cta.num_tiles; ++tile) cta.run_tile(tile);
  cta.finish();
}

}  // namespace attune
