// Computes  attention of one KV split of one sequence and KV head for a block of 64 packed query
//           rows (token-major, head-minor), with bulk copies and wgmma. Results as in splitkv.cuh.
// Grid      (num_row_blocks * split_cap, num_kv_heads, batch), row blocks fastest: neighbours read
//           the same keys, and their reads are merged on the way to L2.
// Threads   384. A warpgroup of which one thread requests K and V; one ("scores") that makes the
//           probabilities and sums up output columns 0..255, P from registers; one ("values") that
//           sums up columns 256..511, P from shared memory.
// Tiles     Q [64, 512] resident; K and V [BLOCK_N, 512], num_stages slots each; fp32 sums. Unified
//           rows: one tile [BLOCK_N, kUnifiedColumns] a slot, K and V alike. All tiles are panels
//           of 64 columns with the 128-byte swizzle. In pages they begin at multiples of BLOCK_N.
// Smem      Q | K slots | V slots | P buffers | row factors per buffer | row magnitudes | inverse
//           row sums | mbarriers. P of unified rows lies in K_rot of its slot, which the scores have
//           used up.
// Sync      a slot is requested, arrives and is freed in parts (WgmmaTraits::part_panels):
//             full   the part has arrived             copies -> the warpgroups that read it
//             empty  its last reader is done with it  4 warps -> the producer
//           and per buffer of P:
//             ready  P and the factors are visible    scores -> values
//             done   the values have used them up     values -> scores; unified: the slot's empty
//           and asked: the copies of Q are under way   both -> the producer
//           of separate K and V of a prefill also
//             scored the next tile has its scores      scores -> values
// Order     K runs one tile ahead of V, in requests as in products: a slot of K is free before the
//           slot of V of the same tile (in step it is 20% slower on an H200). In prefills with
//           separate K and V the "values" wait for the scores of the next tile, so that their
//           products run under its softmax.
// Splits    planned from kv_len on the device (split_plan.h); CTAs past the plan leave at once.
// Limits    Family::static_limits; sm_90a. Rows at or beyond kv_len are read as far as the buffer
//           goes, whatever they hold, and count as zeros.
// Source    the division of labour is that of FlashAttention-3 for wide values (Shah et al., 2024).
#pragma once

#include "templates/config.h"
#include "templates/device/mma.cuh"
#include "templates/device/ptx.cuh"
#include "templates/device/ptx_hopper.cuh"
#include "templates/device/softmax.cuh"
#include "templates/device/warpgroup_rows.cuh"
#include "templates/device/wgmma_tile.cuh"
#include "templates/params.h"
#include "templates/split_work.cuh"
#include "templates/wgmma_cta.cuh"

namespace attune {

// Whether the "values" hold back until the next tile has its scores: where the tensor cores are the
// limit, as they are with more row blocks than a step has. Of unified rows they would free their slot
// too late.
template <typename T>
__device__ __forceinline__ bool holds_values(const AttentionParams& p) {
  constexpr int kMostStepBlocks = 2;
  return !T::kUnified && p.num_row_blocks > kMostStepBlocks;
}

// The warpgroup that scores.
template <typename T, bool kSoftcap>
struct WgmmaScores : WgmmaOutput<T, 0>, RowSoftmax<T::BLOCK_N, kSoftcap> {
  using Output = WgmmaOutput<T, 0>;
  using Softmax = RowSoftmax<T::BLOCK_N, kSoftcap>;
  using Place = typename T::Place;
  using Output::lane;
  using Output::p;
  using Output::row;
  using Output::smem;
  using Output::sums;
  using Output::work;
  using Softmax::factor;
  using Softmax::kTokenSteps;
  using Softmax::limits;
  using Softmax::make_probabilities;
  using Softmax::probabilities;
  using Softmax::reference;
  using Softmax::row_sum;
  using Softmax::scale;
  using Softmax::scores;
  using Softmax::unmasked;

  __device__ __forceinline__ WgmmaScores(const AttentionParams& params, const SplitWork& cta,
                                         unsigned char* shared)
      : Output(params, cta, shared), Softmax(params.sm_scale, params.softcap) {}

  __device__ __forceinline__ KeyRange limits_of(int token) const {
    const KeyRange seen = visible_keys(work.kv_len, p.seqlen_q, token, token, p.window, p.causal);
    return {max(seen.begin, work.begin), min(seen.end, work.end)};
  }
  __device__ __forceinline__ void start() {
    const int first_row = min(work.first_row, work.num_rows - 1);
    const int last_row = min(first_row + T::kRows, work.num_rows) - 1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Padding sees what the last row sees.
      limits[half] = limits_of(token_of(p, min(first_row + row(half), last_row)));
    }
    this->reset();
    unmasked = {limits_of(token_of(p, last_row)).begin, limits_of(token_of(p, first_row)).end};
    this->clear();
  }

  // scores = Q K^T, in two groups: after each its part of K is free.
  template <int kPart>
  __device__ __forceinline__ void start_part(const Place& place) {
    mbarrier_wait_parity(smem + T::full(place.slot, kPart), place.parity);
    uint64 query = row_descriptor(smem);
    uint64 key = row_descriptor(smem + T::keys(place.slot));
    opaque(query);
    opaque(key);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < T::kHalfPanels * kPanelSteps; ++i) {
      const int panel = T::key_panel(kPart * T::kHalfPanels + i / kPanelSteps);
      const int step = i % kPanelSteps * kStepBytes;
      const uint64 a = moved(query, panel * T::kQueryPanelBytes + step);
      const uint64 b = moved(key, panel * T::kTilePanelBytes + step);
      if (kPart == 0 && i == 0) {
        wgmma_mma_async<0>(scores, a, b);
      } else {
        wgmma_mma_async<1>(scores, a, b);
      }
    }
    wgmma_commit_group();
  }
  __device__ __forceinline__ void start_scores(const Place& place) {
    opaque(scores);
    start_part<0>(place);
    start_part<1>(place);
  }
  template <int kPart>
  __device__ __forceinline__ void free_part(const Place& place) {
    warp_arrive(smem + T::empty(place.slot, kPart), lane);
  }

  // P in registers, as an A operand is, and the same in shared memory with the rows' factors.
  __device__ __forceinline__ void publish(const Place& place, int buffer, uint32 done_parity) {
    this->pack_probabilities();
    if constexpr (T::kUnified) {
      // Every warp of the group is past the scores, for which it has read all of K_rot: the end of
      // its own products says nothing about the others'.
      bar_sync(kScoresBarrier, kWarpGroupThreads);
    } else {
      mbarrier_wait_parity(smem + T::done(buffer), done_parity ^ 1);
    }
    const uint32 tile = smem + T::probabilities(buffer);
#pragma unroll
    for (int k = 0; k < kTokenSteps; ++k) {
      const int chunk = 2 * k + a_fragment_chunk(lane);
      stmatrix_x4(tile + panel_offset(Output::warp_row + a_fragment_row(lane), chunk),
                  probabilities[k]);
    }
    if (lane % 4 == 0) {
      this->factors(buffer)[row(0)] = factor[0];
      this->factors(buffer)[row(1)] = factor[1];
    }
    fence_proxy_async();
    warp_arrive(smem + T::ready(buffer), lane);
  }
  __device__ __forceinline__ void start_values(const Place& place) {
    const uint64 value = this->value_descriptor(place.slot);
    opaque(sums);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTokenSteps; ++k) {
      wgmma_mma_async<1, 1>(sums, probabilities[k], moved(value, k * kTokenStepBytes));
    }
    wgmma_commit_group();
  }
  __device__ __forceinline__ void wait_for_values(const Place& place) {
    if constexpr (!T::kUnified) {
      mbarrier_wait_parity(smem + T::full(place.slot, T::kScoresPart), place.parity);
    }
  }

  __device__ __forceinline__ void run(int first_key, int num_tiles) {
    Place place;
    Place next;
    RingPlace<T::kBuffers> buffer;
    next.advance();
    start_scores(place);
    wgmma_wait_group<0>();
    opaque(scores);
    if constexpr (!T::kUnified) {
      free_part<0>(place);
      free_part<1>(place);
    }
    make_probabilities(first_key);
    for (int tile = 0; tile + 1 < num_tiles; ++tile) {
      publish(place, buffer.slot, buffer.parity);
      buffer.advance();
      this->rescale(factor[0], factor[1]);
      start_scores(next);
      wait_for_values(place);
      start_values(place);
      if constexpr (!T::kUnified) {
        wgmma_wait_group<2>();
        free_part<0>(next);
      }
      wgmma_wait_group<1>();
      opaque(scores);
      if constexpr (!T::kUnified) {
        free_part<1>(next);
        if (holds_values<T>(p)) warp_arrive(smem + T::scored(tile % T::kBuffers), lane);
      }
      make_probabilities(first_key + (tile + 1) * T::BLOCK_N);
      wgmma_wait_group<0>();
      opaque(sums);
      keep_until_here(probabilities, row_sum[0]);
      free_part<T::kScoresPart>(place);
      place = next;
      next.advance();
    }
    publish(place, buffer.slot, buffer.parity);
    this->rescale(factor[0], factor[1]);
    wait_for_values(place);
    this->clear_tail(place.slot, work.kv_len - first_key - (num_tiles - 1) * T::BLOCK_N);
    start_values(place);
    wgmma_wait_group<0>();
    opaque(sums);
    keep_until_here(probabilities, row_sum[0]);
  }

  // The lse of the rows, and what their sums are to be multiplied by.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_sum(row_sum[half]);
      if (lane % 4 != 0 || work.first_row + row(half) >= work.num_rows) continue;
      const bool seen = sum > 0.0f;
      const float lse = seen ? scale.subtrahend(reference[half]) + lg2(sum) : negative_infinity();
      Output::target(row(half)).write_lse(lse);
      this->inverses()[row(half)] = seen ? rcp(sum) : 0.0f;
    }
  }
};

// The warpgroup that only sums up values.
template <typename T>
struct WgmmaValues : WgmmaOutput<T, 1> {
  using Output = WgmmaOutput<T, 1>;
  using Output::lane;
  using Output::Output;
  using Output::p;
  using Output::row;
  using Output::smem;
  using Output::sums;
  using Output::work;

  __device__ __forceinline__ void run(int first_key, int num_tiles) {
    typename T::Place place;
    RingPlace<T::kBuffers> buffer;
    for (int tile = 0; tile < num_tiles; ++tile) {
      mbarrier_wait_parity(smem + T::ready(buffer.slot), buffer.parity);
      this->rescale(this->factors(buffer.slot)[row(0)], this->factors(buffer.slot)[row(1)]);
      mbarrier_wait_parity(smem + T::full(place.slot, T::kValuesPart), place.parity);
      this->clear_tail(place.slot, work.kv_len - first_key - tile * T::BLOCK_N);
      if constexpr (!T::kUnified) {
        if (holds_values<T>(p) && tile + 1 < num_tiles) {
          mbarrier_wait_parity(smem + T::scored(buffer.slot), buffer.parity);
        }
      }
      const uint64 value = this->value_descriptor(place.slot);
      uint64 probabilities = row_descriptor(smem + T::probabilities(buffer.slot));
      opaque(probabilities);
      opaque(sums);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < T::BLOCK_N / kMmaDepth; ++k) {
        wgmma_mma_async<1, 0, 1>(sums, moved(probabilities, k * kStepBytes),
                                 moved(value, k * kTokenStepBytes));
      }
      wgmma_commit_group();
      wgmma_wait_group<0>();
      opaque(sums);
      if constexpr (!T::kUnified) warp_arrive(smem + T::done(buffer.slot), lane);
      warp_arrive(smem + T::empty(place.slot, T::kValuesPart), lane);
      place.advance();
      buffer.advance();
    }
  }
};

template <KernelConfig kConfig, int kHeadDim, KvLayout kLayout, bool kSoftcap, bool kInvariant>
__device__ __forceinline__ void wgmma(const AttentionParams& p) {
  static_assert(!kInvariant, "the order of a row's sums is not the one of invariant rows");
  extern __shared__ __align__(kSwizzleBytes) unsigned char smem[];
  using T = WgmmaTraits<kConfig, kHeadDim, kLayout>;
  if (p.overlap == 0) griddepcontrol_wait();
  SplitWork work;
  if (!find_work<kConfig, kHeadDim, false, true>(p, work)) return;
  const int first_key = first_tile_key<T>(work);
  const int num_tiles = (work.end - first_key + T::BLOCK_N - 1) / T::BLOCK_N;
  if (threadIdx.x == 0) {
    prefetch_tensormap(&p.k_map);
    if constexpr (!T::kUnified) prefetch_tensormap(&p.v_map);
    init_barriers<T>(smem_address(smem));
  }
  __syncthreads();
  const int group = threadIdx.x / kWarpGroupThreads;
  // 24 + 2 * 240 registers are what three warpgroups of 168 start with.
  if (group == 0) {
    setmaxnreg_dec<24>();
    // No other lane of the warp may wait for the kernel in front: that would hold this one up too.
    if (threadIdx.x == 0) {
      WgmmaProducer<T>{p, work, smem_address(smem), first_key, num_tiles, false}.run();
    }
  } else if (group == 1) {
    setmaxnreg_inc<240>();
    WgmmaScores<T, kSoftcap> scores(p, work, smem);
    if (num_tiles > 0) scores.request_queries();
    scores.start();
    if (num_tiles > 0) {
      scores.wait_for_queries();
      scores.run(first_key, num_tiles);
    }
    scores.finish();
    scores.write();
  } else {
    setmaxnreg_inc<240>();
    WgmmaValues<T> values(p, work, smem);
    if (num_tiles > 0) values.request_queries();
    values.clear();
    if (num_tiles > 0) {
      values.wait_for_queries();
      values.run(first_key, num_tiles);
    }
    values.write();
  }
}

}  // namespace attune
