// The CTA of wgrows.cuh: its places in shared memory, the blocks that it works on in turn, and the thread
// that requests their tiles.
#pragma once

#include "templates/config.h"
#include "templates/device/ptx.cuh"
#include "templates/device/ptx_hopper.cuh"
#include "templates/device/warpgroup_rows.cuh"
#include "templates/device/wgmma_tile.cuh"
#include "templates/params.h"
#include "templates/row_work.cuh"
#include "templates/wgrows_config.h"

namespace attune {

// Compile-time shape of the kernel and the places in its shared memory.
template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout>
struct WgrowsTraits {
  static constexpr int BLOCK_M = kConfig.block_m;
  static constexpr int BLOCK_N = kConfig.block_n;
  static constexpr int kStages = kConfig.num_stages;
  static constexpr int kColumns = kHeadDim;
  static constexpr KvLayout kKvLayout = kLayout;
  using Place = RingPlace<kStages>;

  static constexpr int kConsumers = BLOCK_M / kWarpGroupRows;
  static constexpr int kConsumerThreads = kConsumers * kWarpGroupThreads;
  static constexpr int kPanels = kHeadDim / kPanelColumns;
  static constexpr int kQueryPanelBytes = kWarpGroupRows * kPanelBytes;
  static constexpr int kQueryBytes = kPanels * kQueryPanelBytes;  // of a warpgroup
  static constexpr int kTilePanelBytes = BLOCK_N * kPanelBytes;
  static constexpr int kTileBytes = kPanels * kTilePanelBytes;
  static constexpr int kSmemK = kConsumers * kQueryBytes;
  static constexpr int kSmemV = kSmemK + kStages * kTileBytes;
  static constexpr int kSmemBarriers = kSmemV + kStages * kTileBytes;
  static constexpr int kSmemBytes = kSmemBarriers + (4 * kStages + 1) * 8;

  static constexpr int queries(int group) { return group * kQueryBytes; }
  static constexpr int tile(bool is_key, int slot) {
    return (is_key ? kSmemK : kSmemV) + slot * kTileBytes;
  }
  static constexpr int full(bool is_key, int slot) {
    return kSmemBarriers + 8 * ((is_key ? 0 : kStages) + slot);
  }
  static constexpr int empty(bool is_key, int slot) { return full(is_key, slot) + 16 * kStages; }
  static constexpr int asked() { return kSmemBarriers + 32 * kStages; }

  static_assert(kSmemBytes == wgrows_smem_bytes(kConfig, kHeadDim, kLayout),
                "one formula for the size");
  static_assert(kHeadDim == kWgrowsHeadDim && BLOCK_M == kWgrowsBlockM,
                "a warpgroup holds 64 rows of 256 columns");
  static_assert(kConfig.num_warps == kWgrowsWarps, "a producer and two consumers");
  static_assert(BLOCK_N == 32 || BLOCK_N == 64, "scores beside the output");
  static_assert(kStages >= 2, "the scores of a tile run ahead of its values");
};

// Named barriers. All threads of a round wait at the same instruction.
constexpr int kRowsBarrier = 1;  // of a warpgroup; the second one has the next
constexpr int kTailBarrier = 3;  // of both

// A tile of keys [begin, begin + BLOCK_N), of which `keys` are in it.
struct WgrowsTile {
  int begin;
  int row;  // of the first key in the buffer
  KeyRange keys;
};

// What a CTA works on in turn.
template <typename T>
struct WgrowsBlock : RowWork {
  int num_tiles;
  int first_key;
  int split_tile = 1 << 30;  // in which a ring begins again; the next one is its rest
  int wrap = 0;              // the first key of its next round

  __device__ __forceinline__ WgrowsBlock(const AttentionParams& p, int idx)
      : RowWork(work_of(p, idx)) {
    const int length = keys.end - keys.begin;
    // A page has whole tiles. Keys before the first visible one may be anything.
    first_key = is_paged(T::kKvLayout) ? keys.begin / T::BLOCK_N * T::BLOCK_N : keys.begin;
    num_tiles = length > 0 ? (keys.end - first_key + T::BLOCK_N - 1) / T::BLOCK_N : 0;
    if constexpr (T::kKvLayout == KvLayout::kRing) {
      // A box does not wrap: a tile in which the ring begins again is two.
      const int until_wrap = p.ring_capacity - first_key % p.ring_capacity;
      wrap = first_key + until_wrap;
      if (until_wrap < length && until_wrap % T::BLOCK_N != 0) {
        split_tile = until_wrap / T::BLOCK_N;
        ++num_tiles;
      }
    }
  }

  __device__ __forceinline__ WgrowsTile tile(const AttentionParams& p, int idx) const {
    WgrowsTile one;
    one.keys = {0, 0x7fffffff};
    one.begin = first_key + idx * T::BLOCK_N;
    one.row = one.begin;
    if constexpr (T::kKvLayout == KvLayout::kRing) {
      if (idx > split_tile) one.begin -= T::BLOCK_N;
      // A block's keys are no more than the ring has.
      one.row = one.begin - wrap;
      if (one.begin < wrap) one.row += p.ring_capacity;
      if (idx == split_tile) one.keys.end = wrap;
      if (idx == split_tile + 1) {
        one.keys.begin = wrap;
        one.row = one.begin - wrap;  // the rows in front of the buffer become zeros
      }
    }
    return one;
  }

 private:
  // Blocks of a head that follow each other are neighbours; then the next head has its turn.
  static __device__ __forceinline__ RowWork work_of(const AttentionParams& p, int idx) {
    const int heads = p.num_kv_heads * p.batch;
    const int whole = p.num_row_blocks / kWgrowsNeighbours * kWgrowsNeighbours;
    const bool in_whole = idx < whole * heads;
    const int group = in_whole ? kWgrowsNeighbours : p.num_row_blocks - whole;
    const int rest = in_whole ? idx : idx - whole * heads;
    const int turn = rest / group;
    const int head = turn % heads;
    const int place = (in_whole ? turn / heads * kWgrowsNeighbours : whole) + rest % group;
    return row_work<T::BLOCK_M>(p, place, head % p.num_kv_heads, head / p.num_kv_heads);
  }
};

// The blocks of this CTA in turn.
struct WgrowsOrder {
  int num_blocks;
  int round = 0;

  __device__ __forceinline__ explicit WgrowsOrder(const AttentionParams& p)
      : num_blocks(p.num_row_blocks * p.num_kv_heads * p.batch) {}
  // The next one, or one past the end.
  __device__ __forceinline__ int next() {
    const auto ctas = static_cast<int>(gridDim.x);
    const auto cta = static_cast<int>(blockIdx.x);
    const int first = round * ctas;
    // The last round is not full: no block of it must be in nobody's place.
    const int in_round = min(ctas, num_blocks - first);
    const bool backwards = round % 2 == 1;
    ++round;
    if (in_round <= 0) return num_blocks;
    const int place = backwards ? ctas - 1 - cta : cta;
    return place < in_round ? first + place : num_blocks;
  }
};

template <typename T>
__device__ __forceinline__ void init_wgrows_barriers(uint32 smem) {
  for (int slot = 0; slot < T::kStages; ++slot) {
    mbarrier_init(smem + T::full(true, slot), 1);
    mbarrier_init(smem + T::full(false, slot), 1);
    mbarrier_init(smem + T::empty(true, slot), T::kConsumers * kWarpGroupWarps);
    mbarrier_init(smem + T::empty(false, slot), T::kConsumers * kWarpGroupWarps);
  }
  mbarrier_init(smem + T::asked(), T::kConsumers * kWarpGroupWarps);
  fence_mbarrier_init();
}

// The thread that requests all tiles.
template <typename T>
struct WgrowsProducer {
  const AttentionParams& p;
  uint32 smem;
  typename T::Place key_place;
  typename T::Place value_place;

  template <bool kIsKey>
  __device__ __forceinline__ void request(const WgrowsBlock<T>& block, int idx) {
    if (idx >= block.num_tiles) return;
    typename T::Place& place = kIsKey ? key_place : value_place;
    const WgrowsTile tile = block.tile(p, idx);
    int at[5] = {0, tile.row, 0, block.kv_head, block.sequence};
    if constexpr (is_paged(T::kKvLayout)) {
      const int* const pages = p.block_table + block.sequence * p.block_table_stride;
      at[1] = tile.begin & ((1 << p.page_shift) - 1);
      at[4] = pages[tile.begin >> p.page_shift];
    }
    const uint32 full = smem + T::full(kIsKey, place.slot);
    mbarrier_wait_parity(smem + T::empty(kIsKey, place.slot), place.parity ^ 1);
    mbarrier_arrive_expect_tx(full, T::kTileBytes);
    cp_async_bulk_tensor_load<5>(smem + T::tile(kIsKey, place.slot), kIsKey ? &p.k_map : &p.v_map,
                                 at, full);
    place.advance();
  }

  // In the order in which slots come free: one thread waits for one at a time. Queries behind the
  // tiles of all slots would come late.
  __device__ __forceinline__ void run() {
    WgrowsOrder order(p);
    for (int idx = order.next(); idx < order.num_blocks; idx = order.next()) {
      const WgrowsBlock<T> block(p, idx);
      request<true>(block, 0);
      if (idx == static_cast<int>(blockIdx.x) && block.num_tiles > 0) {
        mbarrier_wait_parity(smem + T::asked(), 0);
      }
      for (int tile = 0; tile < block.num_tiles; ++tile) {
        request<true>(block, tile + 1);
        request<false>(block, tile);
      }
    }
  }
};

}  // namespace attune
