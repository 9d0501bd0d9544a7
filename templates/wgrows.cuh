// Computes  attention of blocks of 128 packed query rows of a prefill chunk (token-major,
//           head-minor) over all keys that they see, with bulk copies and wgmma; writes out and lse.
// Grid      any number of CTAs: one takes every gridDim.x-th block, in alternating order, so that long
//           and short blocks add up. The rows that see the most keys come first; neighbouring CTAs
//           read the same keys.
// Threads   384. A warpgroup of which one thread requests K and V, and two that have 64 rows each
//           with all columns of their output.
// Tiles     Q [128, 256] resident; K and V [BLOCK_N, 256], num_stages slots each, shared by both
//           warpgroups; fp32 sums. Panels of 64 columns with the 128-byte swizzle. P stays in
//           registers.
// Smem      Q, at the end the output | K slots | V slots | mbarriers.
// Sync      per slot
//             full   the tile has arrived             copy -> both warpgroups
//             empty  both are done with it            8 warps -> the producer
//           and asked: the copies of Q are under way  both -> the producer
//           A warpgroup issues the scores of tile i + 1 before the values of tile i, and makes
//           probabilities of the former while the latter are summed up; the scores of tile i + 2
//           follow without a wait. The other one is anywhere in its own tile: nothing holds them
//           together but the slots.
// Order     K runs one tile ahead of V, in requests as in products.
// Limits    Family::static_limits; sm_90a. Rows at or beyond kv_len are read as far as the buffer
//           goes, whatever they hold, and count as zeros.
// Source    the overlap within a warpgroup is that of FlashAttention-3 (Shah et al., 2024).
#pragma once

#include "templates/config.h"
#include "templates/device/mma.cuh"
#include "templates/device/ptx.cuh"
#include "templates/device/ptx_hopper.cuh"
#include "templates/device/softmax.cuh"
#include "templates/device/warpgroup_rows.cuh"
#include "templates/device/wgmma_tile.cuh"
#include "templates/params.h"
#include "templates/row_work.cuh"
#include "templates/wgrows_cta.cuh"

namespace attune {

// A warpgroup and its 64 rows of each block.
template <typename T, bool kSoftcap>
struct WgrowsConsumer : RowSums<T::kColumns>, RowSoftmax<T::BLOCK_N, kSoftcap> {
  using Softmax = RowSoftmax<T::BLOCK_N, kSoftcap>;
  using Place = typename T::Place;
  using RowSums<T::kColumns>::sums;
  using Softmax::factor;
  using Softmax::limits;
  using Softmax::probabilities;
  using Softmax::reference;
  using Softmax::row_sum;
  using Softmax::scale;
  using Softmax::scores;

  const AttentionParams& p;
  unsigned char* memory;
  uint32 smem = smem_address(memory);
  int group = static_cast<int>(threadIdx.x) / kWarpGroupThreads - 1;
  int lane = threadIdx.x % kWarpSize;
  int warp_row = threadIdx.x % kWarpGroupThreads / kWarpSize * kMmaRows;
  Place key_place;
  Place value_place;
  uint32 weights[Softmax::kTokenSteps][4];  // P of the tile whose values are summed up

  __device__ __forceinline__ WgrowsConsumer(const AttentionParams& params, unsigned char* shared)
      : Softmax(params.sm_scale, params.softcap), p(params), memory(shared) {}

  // A row of this thread in the warpgroup.
  __device__ __forceinline__ int row(int half) const { return warp_row + half * 8 + lane / 4; }
  __device__ __forceinline__ int first_row(const RowWork& work) const {
    return work.first_row + group * kWarpGroupRows;
  }

  __device__ __forceinline__ void start(const RowWork& work) {
    const int last_row = min(work.first_row + T::BLOCK_M, work.num_rows) - 1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Padding sees what the last row sees.
      const int packed = min(first_row(work) + row(half), last_row);
      limits[half] = work.keys_of(p, packed / p.group_size);
    }
    this->unmasked = work.template unmasked<T::BLOCK_M>(p);
    this->reset();
    this->clear();
#pragma unroll
    for (int k = 0; k < Softmax::kTokenSteps; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[k][i] = 0;
    }
  }

  // The queries of the warpgroup; a warp copies whole rows.
  __device__ __forceinline__ void request_queries(const RowWork& work) {
    constexpr int kChunks = T::kColumns / kChunkElements;
    constexpr int kRows = kWarpGroupThreads / kChunks;
    const int thread = threadIdx.x % kWarpGroupThreads;
    const int chunk = thread % kChunks;
    const uint16* const from = static_cast<const uint16*>(p.q) + work.batch_idx * p.q_batch_stride +
                               static_cast<int64>(work.kv_head) * p.group_size * p.q_head_stride +
                               chunk * kChunkElements;
    const uint32 panel = smem + T::queries(group) + chunk / kPanelChunks * T::kQueryPanelBytes;
#pragma unroll 4
    for (int i = thread / kChunks; i < kWarpGroupRows; i += kRows) {
      const int packed = first_row(work) + i;
      const bool is_row = packed < work.num_rows;
      const int64 offset = is_row ? row_offset(p, packed, p.q_token_stride, p.q_head_stride) : 0;
      cp_async_16(panel + panel_offset(i, chunk % kPanelChunks), from + offset, is_row ? 16 : 0);
    }
    cp_async_commit_group();
  }
  // Queries of all threads are visible to wgmma then.
  __device__ __forceinline__ void wait_for_queries() {
    cp_async_wait_group<0>();
    fence_proxy_async();
    bar_sync(kRowsBarrier + group, kWarpGroupThreads);
  }

  // scores = Q K^T
  __device__ __forceinline__ void start_scores() {
    mbarrier_wait_parity(smem + T::full(true, key_place.slot), key_place.parity);
    uint64 query = row_descriptor(smem + T::queries(group));
    uint64 key = row_descriptor(smem + T::tile(true, key_place.slot));
    opaque(query);
    opaque(key);
    opaque(scores);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < T::kPanels * kPanelSteps; ++i) {
      const int step = i % kPanelSteps * kStepBytes;
      const uint64 a = moved(query, i / kPanelSteps * T::kQueryPanelBytes + step);
      const uint64 b = moved(key, i / kPanelSteps * T::kTilePanelBytes + step);
      if (i == 0) {
        wgmma_mma_async<0>(scores, a, b);
      } else {
        wgmma_mma_async<1>(scores, a, b);
      }
    }
    wgmma_commit_group();
  }
  // kPending groups were issued behind the scores.
  template <int kPending>
  __device__ __forceinline__ void finish_scores() {
    wgmma_wait_group<kPending>();
    opaque(scores);
    warp_arrive(smem + T::empty(true, key_place.slot), lane);
    key_place.advance();
  }
  // sums += P V
  __device__ __forceinline__ void start_values() {
    uint64 value = token_descriptor(smem + T::tile(false, value_place.slot), T::kTilePanelBytes);
    opaque(value);
    opaque(sums);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Softmax::kTokenSteps; ++k) {
      wgmma_mma_async<1, 1>(sums, weights[k], moved(value, k * kTokenStepBytes));
    }
    wgmma_commit_group();
  }
  // kPending groups were issued behind the values.
  template <int kPending>
  __device__ __forceinline__ void finish_values() {
    wgmma_wait_group<kPending>();
    opaque(sums);
    keep_until_here(weights, row_sum[0]);
  }
  __device__ __forceinline__ void free_values() {
    warp_arrive(smem + T::empty(false, value_place.slot), lane);
    value_place.advance();
  }
  // Rows of V beyond the end of the sequence: their P is 0, but 0 * NaN would not be. Both
  // warpgroups read them, and each clears its share.
  __device__ __forceinline__ void clear_tail(int num_keys) {
    if (num_keys >= T::BLOCK_N) return;
    constexpr int kChunks = T::kColumns / kChunkElements;
    constexpr int kRows = T::kConsumerThreads / kChunks;
    const int thread = static_cast<int>(threadIdx.x) - kWarpGroupThreads;
    const int chunk = thread % kChunks;
    unsigned char* const panel =
        memory + T::tile(false, value_place.slot) + chunk / kPanelChunks * T::kTilePanelBytes;
    for (int key = num_keys + thread / kChunks; key < T::BLOCK_N; key += kRows) {
      *reinterpret_cast<uint4*>(panel + panel_offset(key, chunk % kPanelChunks)) =
          make_uint4(0, 0, 0, 0);
    }
    fence_proxy_async();
    bar_sync(kTailBarrier, T::kConsumerThreads);
  }

  __device__ __forceinline__ void make_probabilities(const WgrowsBlock<T>& block, int idx) {
    const WgrowsTile tile = block.tile(p, idx);
    Softmax::make_probabilities(tile.begin, tile.keys);
  }
  // The sums are those of the tiles before, and the values of this one are there.
  __device__ __forceinline__ void take_probabilities() {
    this->rescale(factor[0], factor[1]);
#pragma unroll
    for (int k = 0; k < Softmax::kTokenSteps; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[k][i] = probabilities[k][i];
    }
    mbarrier_wait_parity(smem + T::full(false, value_place.slot), value_place.parity);
  }
  __device__ __forceinline__ void sum_up(const WgrowsBlock<T>& block) {
    start_scores();
    finish_scores<0>();
    make_probabilities(block, 0);
    this->pack_probabilities();
    for (int tile = 0; tile + 1 < block.num_tiles; ++tile) {
      start_scores();
      finish_values<1>();
      if (tile > 0) free_values();
      take_probabilities();
      start_values();
      finish_scores<1>();
      make_probabilities(block, tile + 1);
      this->pack_probabilities();
    }
    finish_values<0>();
    if (block.num_tiles > 1) free_values();
    take_probabilities();
    clear_tail(block.kv_len - block.tile(p, block.num_tiles - 1).begin);
    start_values();
    finish_values<0>();
    free_values();
  }

  // The rows to memory, collected in the place of their queries, which all warps have left.
  __device__ __forceinline__ void write(const RowWork& work) {
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_sum(row_sum[half]);
      const bool seen = sum > 0.0f;
      inverse[half] = seen ? rcp(sum) : 0.0f;
      const int packed = first_row(work) + row(half);
      if (p.lse == nullptr || lane % 4 != 0 || packed >= work.num_rows) continue;
      const int token = packed / p.group_size;
      const int head = work.kv_head * p.group_size + packed - token * p.group_size;
      const int64 query = static_cast<int64>(work.batch_idx) * p.seqlen_q + token;
      const float lse = scale.subtrahend(reference[half]) + lg2(sum);
      p.lse[query * (p.num_kv_heads * p.group_size) + head] =
          seen ? lse * kLn2 : negative_infinity();
    }
    bar_sync(kRowsBarrier + group, kWarpGroupThreads);
    this->collect(smem + T::queries(group), T::kQueryPanelBytes, warp_row,
                  [&](float low, float high, int half) {
                    return cvt_bf16x2(low * inverse[half], high * inverse[half]);
                  });
    __syncwarp();
    const int first = first_row(work) + warp_row;
    const int rows = min(kMmaRows, work.num_rows - first);
    if (rows <= 0) return;
    static_assert(T::kColumns == kWarpSize * kChunkElements, "a warp stores a row at once");
    uint16* const out = static_cast<uint16*>(p.out) + work.batch_idx * p.out_batch_stride +
                        static_cast<int64>(work.kv_head) * p.group_size * p.out_head_stride +
                        lane * kChunkElements;
    const int64 offset =
        row_offset(p, first + min(lane, rows - 1), p.out_token_stride, p.out_head_stride);
    store_panel_rows(memory + T::queries(group), T::kQueryPanelBytes, warp_row, rows, out, offset);
  }

  __device__ __forceinline__ void run() {
    WgrowsOrder order(p);
    for (int idx = order.next(); idx < order.num_blocks; idx = order.next()) {
      const WgrowsBlock<T> block(p, idx);
      if (block.num_tiles > 0) {
        // The rows that were in their place have been read by the warps that stored them.
        bar_sync(kRowsBarrier + group, kWarpGroupThreads);
        request_queries(block);
        if (idx == static_cast<int>(blockIdx.x)) warp_arrive(smem + T::asked(), lane);
      }
      start(block);
      if (block.num_tiles > 0) {
        wait_for_queries();
        sum_up(block);
      }
      write(block);
    }
  }
};

template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout, bool kSoftcap, bool kInvariant>
__device__ __forceinline__ void wgrows(const AttentionParams& p) {
  static_assert(!kInvariant, "keys are summed up in one go, not in chunks");
  extern __shared__ __align__(kSwizzleBytes) unsigned char smem[];
  using T = WgrowsTraits<kConfig, kHeadDim, kLayout>;
  if (threadIdx.x == 0) {
    prefetch_tensormap(&p.k_map);
    prefetch_tensormap(&p.v_map);
    init_wgrows_barriers<T>(smem_address(smem));
  }
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  __syncthreads();
  // 24 + 2 * 240 registers are what three warpgroups of 168 start with.
  if (threadIdx.x < kWarpGroupThreads) {
    setmaxnreg_dec<24>();
    if (threadIdx.x == 0) WgrowsProducer<T>{p, smem_address(smem), {}, {}}.run();
  } else {
    setmaxnreg_inc<240>();
    WgrowsConsumer<T, kSoftcap>(p, smem).run();
  }
}

}  // namespace attune
