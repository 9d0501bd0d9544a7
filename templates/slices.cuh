// Computes  what tiled.cuh does, where Q leaves no room for whole tiles of K and V: they come in slices
//           of 128 columns, so that 64 rows of head_dim 512 fit into 99 KB of shared memory.
// Grid      (num_row_blocks, num_kv_heads, batch); the rows that see the most keys start first.
// Threads   num_warps * 32.
// Tiles     Q [BLOCK_M, head_dim] resident; K and V as slices [BLOCK_N, 128] in a ring of num_stages
//           slots: those of K, then those of V, tile after tile; fp32 sums. V of unified rows is read
//           again, columns 128..639 of the row.
// Warps     as in tiled.cuh, but a warp has a share of each slice's columns of the output. The fragments
//           of P stay in registers over the slices of V.
// Smem      Q, at the end the output | slots | P | row maxima (at the end sums) per column group. The last
//           two with several column groups only.
// Sync      per slice, by all warps
//           A  it has arrived, and the slot of the slice before is free: the slice num_stages - 1 ahead
//              is requested
//           and once a tile, by the warps of a row group where there are several
//           B  the row maxima are visible
//           C  P is visible
// Chunks    do not matter, as in tiled.cuh.
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
struct SlicesTraits {
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
  static constexpr int kSlices = kHeadDim / kSliceColumns;
  static constexpr int kWarpColumns = kSliceColumns / kColumnGroups;  // of the output, in a slice
  static constexpr int kSliceTiles = kWarpColumns / kMmaTokens;
  static constexpr int kColumnTiles = kSlices * kSliceTiles;
  // The first column of the eight that are tile `n` of a warp's share.
  static constexpr int column_of(int column_group, int n) {
    return n / kSliceTiles * kSliceColumns + column_group * kWarpColumns +
           n % kSliceTiles * kMmaTokens;
  }

  static constexpr bool kUnified = is_unified(kLayout);
  static constexpr bool kSharesP = kColumnGroups > 1;
  static constexpr bool kPInSlot = false;

  static constexpr int kSlotBytes = BLOCK_N * kSliceColumns * kBytesPerElement;
  static constexpr int kPitch = probability_pitch(kConfig) * kBytesPerElement;
  static constexpr int kSmemSlots = BLOCK_M * kHeadDim * kBytesPerElement;
  static constexpr int kSmemP = kSmemSlots + kStages * kSlotBytes;
  static constexpr int kSmemRowMax = kSmemP + (kSharesP ? BLOCK_M * kPitch : 0);
  static constexpr int kSmemBytes = kSmemRowMax + (kSharesP ? kColumnGroups * BLOCK_M * 4 : 0);

  static_assert(kSmemBytes == slices_smem_bytes(kConfig, kHeadDim, kLayout),
                "one formula for the size");
  static_assert(kGrid.rows > 0, "the warps divide the tiles");
  static_assert(kHeadDim % kSliceColumns == 0, "a row is whole slices");
  static_assert(kWarpColumns % kOutputColumnsPerWarp == 0, "a warp owns whole V fragments");
  static_assert(kTokenTiles % 2 == 0, "K fragments are 16 tokens");
  static_assert(kThreads % (kHeadDim / kChunkElements) == 0, "a pass copies whole rows");
  static_assert(kStages >= 2, "a slice is requested while another one is read");
  static_assert(kStages - 1 <= 2 * kSlices, "what is requested is of this tile or the next one");
};

template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout, bool kSoftcap>
struct Slices : TiledRows<SlicesTraits<kConfig, kHeadDim, kLayout>, kHeadDim, kLayout, kSoftcap> {
  using T = SlicesTraits<kConfig, kHeadDim, kLayout>;
  static constexpr int BLOCK_N = T::BLOCK_N;

  uint32 slot;  // of the next slice that is read

  __device__ __forceinline__ uint32 slots_end() const {
    return this->tile_address(T::kSmemSlots) + T::kStages * T::kSlotBytes;
  }

  __device__ __forceinline__ void start() {
    slot = this->tile_address(T::kSmemSlots);
    this->start_rows();
#pragma unroll
    for (int i = 0; i < T::kStages - 1; ++i) {
      copy_slice(i, 0, slot + i * T::kSlotBytes);
      cp_async_commit_group();
    }
    this->clear_rows();
  }

  // Slice `idx` of a tile: those of K come before those of V.
  __device__ __forceinline__ void copy_slice(int idx, int tile, uint32 to) {
    if (tile >= this->num_tiles) return;
    const bool is_key = idx < T::kSlices;
    const int column = idx % T::kSlices * kSliceColumns;
    const auto copy = [&](const void* buffer, const KvRows<kLayout>& rows, int first_column) {
      copy_kv_tile<BLOCK_N, kSliceColumns, 0, kSliceColumns, T::kThreads, kLayout>(
          to, static_cast<const uint16*>(buffer) + first_column, rows, this->begin + tile * BLOCK_N,
          this->work.keys.begin, this->work.keys.end, this->thread);
    };
    if (is_key) {
      copy(this->p.k, this->key, column);
    } else if constexpr (T::kUnified) {
      copy(this->p.k, this->key, kUnifiedRotated + column);
    } else {
      copy(this->p.v, this->value, column);
    }
  }

  // A; returns the slice's slot.
  __device__ __forceinline__ uint32 next_slice(int idx, int tile) {
    cp_async_wait_group<T::kStages - 2>();
    __syncthreads();
    const int ahead = idx + T::kStages - 1;
    const uint32 current = slot;
    slot += T::kSlotBytes;
    if (slot == slots_end()) slot = this->tile_address(T::kSmemSlots);
    // The slot of the slice before is the last one in the ring, seen from this one.
    const bool is_first = current == this->tile_address(T::kSmemSlots);
    const uint32 before = is_first ? slots_end() - T::kSlotBytes : current - T::kSlotBytes;
    copy_slice(ahead % (2 * T::kSlices), tile + ahead / (2 * T::kSlices), before);
    cp_async_commit_group();
    return current;
  }

  template <int kSlice>
  __device__ __forceinline__ void score(int tile) {
    const uint32 keys = next_slice(kSlice, tile);
    this->template add_scores<kSliceColumns, kSlice * kSliceColumns, kSliceColumns>(keys);
    if constexpr (kSlice + 1 < T::kSlices) score<kSlice + 1>(tile);
  }

  template <int kSlice>
  __device__ __forceinline__ void sum_up(
      int tile, const uint32 (&weights)[BLOCK_N / kMmaDepth][T::kRowTiles][4]) {
    const uint32 values = next_slice(T::kSlices + kSlice, tile);
    this->template add_products<kSliceColumns, kSlice * T::kSliceTiles, T::kWarpColumns>(
        values, this->column_group * (T::kWarpColumns / kChunkElements),
        [&](int step) -> const uint32(&)[T::kRowTiles][4] { return weights[step]; });
    if constexpr (kSlice + 1 < T::kSlices) sum_up<kSlice + 1>(tile, weights);
  }

  __device__ __forceinline__ void run_tile(int tile) {
    this->clear_scores();
    score<0>(tile);
    this->keep_scores(this->begin + tile * BLOCK_N);
    float tile_max[T::kRowTiles][2];
    this->find_maxima(tile_max);
    // B
    if constexpr (T::kSharesP) this->sync_row_group();
    this->make_probabilities(tile_max);
    // C
    if constexpr (T::kSharesP) {
      this->show_probabilities(0);
      this->sync_row_group();
    }
    uint32 weights[BLOCK_N / kMmaDepth][T::kRowTiles][4];
#pragma unroll
    for (int step = 0; step < BLOCK_N / kMmaDepth; ++step) {
#pragma unroll
      for (int m = 0; m < T::kRowTiles; ++m) this->load_probabilities(weights[step][m], 0, m, step);
    }
    sum_up<0>(tile, weights);
  }
};

template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout, bool kSoftcap, bool kInvariant>
__device__ __forceinline__ void slices(const AttentionParams& p) {
  static_assert(!kInvariant, "keys are summed up in one go, not in chunks");
  extern __shared__ __align__(128) unsigned char smem[];
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const RowWork work = row_work<kConfig.block_m>(p, blockIdx.x, blockIdx.y, blockIdx.z);
  Slices<kConfig, kHeadDim, kLayout, kSoftcap> cta{
      {p, work, smem, ScoreScale<kSoftcap>(p.sm_scale, p.softcap)}};
  cta.start();
  for (int tile = 0; tile < cta.num_tiles; ++tile) cta.run_tile(tile);
  cta.finish();
}

}  // namespace attune
