// K/V tiles in streams: every warp, or the warps that share a stream, has slots of its own, which
// bulk tensor copies fill while it computes on the others. A tile is panels of 64 columns
// [BLOCK_N rows, 128 bytes] with the 128-byte swizzle.
#pragma once

#include "templates/config.h"
#include "templates/device/kv_rows.cuh"
#include "templates/device/mma.cuh"
#include "templates/device/ptx.cuh"
#include "templates/device/ptx_hopper.cuh"
#include "templates/params.h"
#include "templates/split_work.cuh"

namespace attune {

// A lane's row of an ldmatrix in a panel and its chunk addresses for the steps of 16 columns. Rows
// that are a multiple of 8 further down and later panels are constant offsets.
struct PanelRow {
  uint32 step[kPanelSteps];

  // `row` and `chunk` are the lane's; the chunk of step i is chunk + 2 * i.
  __device__ __forceinline__ void locate(uint32 panel, int row, int chunk) {
    const uint32 base = panel + row * kPanelBytes + ((chunk ^ (row & 7)) << 4);
#pragma unroll
    for (int i = 0; i < kPanelSteps; ++i) step[i] = base ^ (i << 5);
  }
};

// Row and chunk of a lane for the A fragment of V^T, 16 columns of V x 16 tokens, by
// ldmatrix.trans (rows are tokens).
__device__ __forceinline__ int value_fragment_row(int lane) { return (lane & 7) + (lane >> 4) * 8; }
__device__ __forceinline__ int value_fragment_chunk(int lane) { return (lane >> 3) & 1; }

// The slots of a CTA whose warps are divided as kWarpGrid says.
template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout, StreamGrid kWarpGrid>
struct StreamSlots {
  static constexpr int BLOCK_M = kConfig.block_m;
  static constexpr int BLOCK_N = kConfig.block_n;
  static constexpr int kStages = kConfig.num_stages;
  static constexpr int kWarps = kConfig.num_warps;
  static constexpr int kWarpRows = kWarpGrid.warp_rows;
  static constexpr int kRowGroups = kWarpGrid.row_groups;
  static constexpr int kStreams = kWarpGrid.streams;
  static_assert(kStreams > 0, "the warps are whole streams");

  static constexpr bool kUnified = is_unified(kLayout);
  static constexpr int kColumns = kv_row_columns(kLayout, kHeadDim);
  static constexpr int kPanelTileBytes = BLOCK_N * kPanelBytes;
  static constexpr int kTileBytes = BLOCK_N * kColumns * kBytesPerElement;
  static constexpr int kSlotBytes = (kUnified ? 1 : 2) * kTileBytes;

  // full K, full V, empty K, empty V of every slot
  static constexpr int kBarriersPerSlot = 4;
  static constexpr int kQueryBytes = BLOCK_M * kHeadDim * kBytesPerElement;
  static constexpr int kBarrierBytes = kStreams * kStages * kBarriersPerSlot * 8;
};

template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout>
struct StreamTraits : StreamSlots<kConfig, kHeadDim, kLayout, stream_grid(kConfig, kHeadDim)> {
  using Slots = StreamSlots<kConfig, kHeadDim, kLayout, stream_grid(kConfig, kHeadDim)>;
  static constexpr int kSmemQuery = stream_slots_bytes(kConfig, kHeadDim, kLayout);
  static constexpr int kSmemBarriers = kSmemQuery + Slots::kQueryBytes;
  static constexpr int kSmemStats = kSmemBarriers + Slots::kBarrierBytes;
  static constexpr int kSmemFactors = kSmemStats + Slots::kStreams * Slots::BLOCK_M * 8;
  static constexpr int kSmemRowOffset = kSmemFactors + Slots::kStreams * Slots::BLOCK_M * 4;
  static constexpr int kSmemBytes = kSmemRowOffset + Slots::BLOCK_M * 8;
  static_assert(kSmemBytes == swapab_smem_bytes(kConfig, kHeadDim, kLayout),
                "one formula for the size");
};

// The same of a kernel whose warps have a stream each and all rows of the block.
template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout>
struct OneRoundTraits
    : StreamSlots<kConfig, kHeadDim, kLayout, StreamGrid{kConfig.block_m, 1, kConfig.num_warps}> {
  using Slots =
      StreamSlots<kConfig, kHeadDim, kLayout, StreamGrid{kConfig.block_m, 1, kConfig.num_warps}>;
  static constexpr int kStatsBytes = Slots::kWarps * Slots::BLOCK_M * 4;
  static constexpr int kSmemQuery = Slots::kWarps * Slots::kStages * Slots::kSlotBytes;
  static constexpr int kSmemBarriers = kSmemQuery + Slots::kQueryBytes;
  static constexpr int kSmemMaxima = kSmemBarriers + Slots::kBarrierBytes;
  static constexpr int kSmemSums = kSmemMaxima + kStatsBytes;
  static constexpr int kSmemProbabilities = kSmemSums + kStatsBytes;
  static constexpr int kSmemBytes =
      kSmemProbabilities + Slots::kWarps * Slots::BLOCK_N * Slots::BLOCK_M * kBytesPerElement;
  static_assert(kSmemBytes == oneround_smem_bytes(kConfig, kHeadDim, kLayout),
                "one formula for the size");
};

// A tile of a stream: keys [begin, begin + kTokens), of which `keys` are there to be read.
template <int kTokens>
struct StreamTile {
  int begin;
  int row;  // of the first key in the buffer
  KeyRange keys;

  __device__ __forceinline__ bool is_whole() const {
    return keys.begin == begin && keys.end == begin + kTokens;
  }
  // A mask of two bf16 numbers: tokens `first` and `first + 1`, where they may be read.
  __device__ __forceinline__ uint32 readable_pair(int first) const {
    const uint32 low = first >= keys.begin && first < keys.end ? 0x0000ffffu : 0u;
    const uint32 high = first + 1 >= keys.begin && first + 1 < keys.end ? 0xffff0000u : 0u;
    return low | high;
  }
};

template <typename T, KvLayout kLayout>
struct StreamTiles {
  static constexpr int BLOCK_N = T::BLOCK_N;
  using Tile = StreamTile<BLOCK_N>;
  static constexpr int kEarlyBytes = 48 << 10;
  // The first warp of a stream fills the slot it has left in the step before, which the others have
  // left by then too; with two slots it has to wait for them instead.
  static constexpr int kLag = T::kRowGroups > 1 && T::kStages > 2 ? 1 : 0;

  const AttentionParams& p;
  const SplitWork& work;
  int stream;
  int num_tiles = 0;  // of the split
  int num_steps = 0;  // of the stream
  int num_started = 0;

  __device__ __forceinline__ StreamTiles(const AttentionParams& params, const SplitWork& of,
                                         uint32 smem, bool has_work)
      : p(params), work(of), slots_(smem) {
    const int warp = threadIdx.x / kWarpSize;
    stream = warp / T::kRowGroups;
    leads_ = warp % T::kRowGroups == 0 && threadIdx.x % kWarpSize == 0;
    slots_ += stream * T::kStages * T::kSlotBytes;
    barriers_ = smem + T::kSmemBarriers + stream * T::kStages * T::kBarriersPerSlot * 8;
    if (has_work && work.end > work.begin) {
      num_tiles = (work.end - work.begin + BLOCK_N - 1) / BLOCK_N;
      if constexpr (kLayout == KvLayout::kRing) {
        // A tile in which the ring begins again is two: its rows are not in one box.
        first_row_ = work.begin % p.ring_capacity;
        const int until_wrap = p.ring_capacity - first_row_;
        const bool wraps = until_wrap < work.end - work.begin && until_wrap % BLOCK_N != 0;
        wrap_ = work.begin + until_wrap;
        if (wraps) {
          split_tile_ = until_wrap / BLOCK_N;
          ++num_tiles;
        }
      }
    }
    num_steps = num_tiles > stream ? (num_tiles - stream - 1) / T::kStreams + 1 : 0;
    if (leads_) {
      for (int i = 0; i < T::kStages; ++i) {
        mbarrier_init(full_keys(i), 1);
        mbarrier_init(full_values(i), 1);
        mbarrier_init(empty_keys(i), T::kRowGroups);
        mbarrier_init(empty_values(i), T::kRowGroups);
      }
      fence_mbarrier_init();
    }
    __syncwarp();
  }

  __device__ __forceinline__ Tile tile(int step) const {
    const int idx = step * T::kStreams + stream;
    Tile one;
    const bool after_wrap = kLayout == KvLayout::kRing && idx > split_tile_;
    one.begin = work.begin + (after_wrap ? idx - 1 : idx) * BLOCK_N;
    one.keys = {max(one.begin, work.visible_begin), min(one.begin + BLOCK_N, work.end)};
    one.row = one.begin;
    if constexpr (kLayout == KvLayout::kRing) {
      // A split is no longer than the ring.
      one.row = first_row_ + one.begin - work.begin;
      if (one.row >= p.ring_capacity) one.row -= p.ring_capacity;
      if (idx == split_tile_) one.keys.end = min(one.keys.end, wrap_);
      if (idx == split_tile_ + 1) {
        one.keys.begin = wrap_;
        one.row -= p.ring_capacity;  // the rows in front of the buffer become zeros
      }
    }
    return one;
  }

  // Copies of tiles that hold no new key. In a cluster, which leaves SMs to the next launch, all
  // that there are slots for; else there is little time until the queries are read, which would
  // wait behind the tiles.
  __device__ __forceinline__ void start_early() {
    constexpr int kTiles = (kEarlyBytes + T::kSlotBytes - 1) / T::kSlotBytes;
    if (p.overlap == 0) return;
    const int most = p.merges_in_cluster != 0 ? T::kStages : stream < kTiles ? 1 : 0;
    start_below(work.kv_len - p.seqlen_q, most);
  }
  // The others of the first round. A CTA barrier has to follow, for the mbarriers.
  __device__ __forceinline__ void start_late() { start_below(work.end, T::kStages); }

  __device__ __forceinline__ uint32 key_tile(int step) const {
    return slots_ + step % T::kStages * T::kSlotBytes;
  }
  // First panel of the values.
  __device__ __forceinline__ uint32 value_tile(int step) const {
    constexpr int kRotatedBytes = kUnifiedRotated / kPanelColumns * T::kPanelTileBytes;
    return key_tile(step) + (T::kUnified ? kRotatedBytes : T::kTileBytes);
  }
  // The same of another stream.
  __device__ __forceinline__ uint32 value_tile_of(int other, int step) const {
    return value_tile(step) + (other - stream) * (T::kStages * T::kSlotBytes);
  }
  __device__ __forceinline__ void wait_for_keys(int step) const {
    mbarrier_wait_parity(full_keys(step % T::kStages), step / T::kStages & 1);
  }
  __device__ __forceinline__ void wait_for_values(int step) const {
    mbarrier_wait_parity(full_values(step % T::kStages), step / T::kStages & 1);
  }
  // The warp has read them; the next ones may come.
  __device__ __forceinline__ void release_keys(int step) {
    __syncwarp();
    if constexpr (T::kRowGroups > 1) {
      if (threadIdx.x % kWarpSize == 0) mbarrier_arrive(empty_keys(step % T::kStages));
    }
    if (leads_) refill<true>(step - kLag);
  }
  // Of unified rows: all of them.
  __device__ __forceinline__ void release_values(int step) {
    __syncwarp();
    if constexpr (T::kRowGroups > 1) {
      if (threadIdx.x % kWarpSize == 0) mbarrier_arrive(empty_values(step % T::kStages));
    }
    if (leads_) refill<false>(step - kLag);
  }

 private:
  __device__ __forceinline__ uint32 full_keys(int slot) const { return barrier(slot, 0); }
  __device__ __forceinline__ uint32 full_values(int slot) const { return barrier(slot, 1); }
  __device__ __forceinline__ uint32 empty_keys(int slot) const { return barrier(slot, 2); }
  __device__ __forceinline__ uint32 empty_values(int slot) const { return barrier(slot, 3); }
  __device__ __forceinline__ uint32 barrier(int slot, int which) const {
    return barriers_ + (slot * T::kBarriersPerSlot + which) * 8;
  }

  __device__ __forceinline__ void start_below(int end, int most) {
    if (!leads_) return;
    while (num_started < min(most, num_steps)) {
      if (tile(num_started).keys.end > end) return;
      start_keys(num_started);
      if constexpr (!T::kUnified) start_values(num_started);
      ++num_started;
    }
  }

  // Fills the slot of step `left` for the step that has it next.
  template <bool kKeys>
  __device__ __forceinline__ void refill(int left) {
    const int next = left + T::kStages;
    if (left < 0 || next >= num_steps) return;
    if constexpr (T::kRowGroups > 1) {
      const int slot = left % T::kStages;
      mbarrier_wait_parity(kKeys ? empty_keys(slot) : empty_values(slot), left / T::kStages & 1);
    }
    // The copies write what ldmatrix has read, in another proxy.
    fence_proxy_async();
    if constexpr (kKeys || T::kUnified) {
      start_keys(next);
    } else {
      start_values(next);
    }
  }

  __device__ __forceinline__ void start_keys(int step) {
    copy(step, p.k_map, key_tile(step), full_keys(step % T::kStages));
  }
  __device__ __forceinline__ void start_values(int step) {
    copy(step, p.v_map, value_tile(step), full_values(step % T::kStages));
  }

  __device__ __forceinline__ void copy(int step, const TensorMap& map, uint32 to, uint32 full) {
    const Tile one = tile(step);
    mbarrier_arrive_expect_tx(full, T::kTileBytes);
    int at[5] = {0, one.row, 0, work.kv_head, work.sequence};
    if constexpr (is_paged(kLayout)) {
      // Tiles begin at multiples of BLOCK_N, which divides every page size.
      at[1] = one.begin & ((1 << p.page_shift) - 1);
      at[4] = p.block_table[work.sequence * p.block_table_stride + (one.begin >> p.page_shift)];
    }
    cp_async_bulk_tensor_load_once<5>(to, &map, at, full);
  }

  uint32 slots_;
  uint32 barriers_;
  bool leads_;                // this thread starts the copies of the stream
  int first_row_ = 0;         // of a ring: of the first key
  int wrap_ = 0;              // the first key of its next round
  int split_tile_ = 1 << 30;  // the tile that it is in, unless it begins one
};

}  // namespace attune
