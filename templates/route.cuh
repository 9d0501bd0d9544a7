// Chooses   the experts of each token (RouteParams).
// Grid      one CTA a group of kMaxLinearTokens tokens. Threads: kRouteThreads, a warp a token; a lane has
//           the scores of every 32nd expert, kChunks of them.
// Sync      griddepcontrol_wait: scores are visible. __syncthreads: every warp's set of experts is.
// Bits      of a token's experts, their order and weights depend on its scores alone. NaN counts as the
//           smallest score; a token of nothing else has weights of NaN.
// Source    transformers' Gemma 4 (Apache-2.0): a softmax over all experts, divided by the sum of those
//           chosen, is the softmax of those.
#pragma once

#include "templates/argmax.cuh"
#include "templates/expert_params.h"

namespace attune {

template <int kChunks>
struct Router {
  const RouteParams& p;
  const int lane = threadIdx.x % kWarpSize;
  float scores[kChunks];
  uint32 taken = 0;                 // bit i: the lane's expert i
  Largest pick{0.0f, 0};            // of lane k the token's expert k
  uint32 chosen_by_group[kChunks];  // bit l of word i: expert 32 i + l

  __device__ __forceinline__ explicit Router(const RouteParams& params) : p(params) {}

  __device__ __forceinline__ void load(int64 token) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int expert = i * kWarpSize + lane;
      scores[i] = expert < p.num_experts
                      ? __fmul_rn(p.scores[token * p.num_experts + expert], p.score_scale)
                      : 0.0f;
      if (scores[i] != scores[i]) scores[i] = negative_infinity();
    }
  }

  // The largest score of the warp that was not taken yet, in all lanes.
  __device__ __forceinline__ Largest largest_left() const {
    constexpr int kNone = 0x7fffffff;
    Largest best{negative_infinity(), kNone};
    const auto consider = [&](const Largest& other) {
      if (best.yields_to(other)) best = other;
    };
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int expert = i * kWarpSize + lane;
      if (expert < p.num_experts && (taken >> i & 1) == 0) consider({scores[i], expert});
    }
#pragma unroll
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
      consider({__shfl_xor_sync(0xffffffffu, best.value, distance),
                __shfl_xor_sync(0xffffffffu, best.index, distance)});
    }
    return best;
  }

  __device__ __forceinline__ void choose() {
    for (int k = 0; k < p.top_k; ++k) {
      const Largest best = largest_left();
      if (best.index % kWarpSize == lane) taken |= 1u << best.index / kWarpSize;
      if (lane == k) pick = best;
    }
  }

  __device__ __forceinline__ void write_weights(int64 token) const {
    const float first = __shfl_sync(0xffffffffu, pick.value, 0);
    const bool counts = lane < p.top_k;
    const float share = counts ? ex2(__fmul_rn(__fsub_rn(pick.value, first), kLog2E)) : 0.0f;
    float total = share;
#pragma unroll
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
      total = __fadd_rn(total, __shfl_xor_sync(0xffffffffu, total, distance));
    }
    if (!counts) return;
    const float scale = __uint_as_float(static_cast<uint32>(p.expert_scale[pick.index]) << 16);
    p.weights[token * p.top_k + lane] = __fmul_rn(__fdiv_rn(share, total), scale);
  }

  __device__ __forceinline__ void join(const uint32 (&sets)[kMaxLinearTokens][kChunks]) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      chosen_by_group[i] = 0;
      for (int token = 0; token < kMaxLinearTokens; ++token) chosen_by_group[i] |= sets[token][i];
    }
  }
  // Experts of the group below `expert`.
  __device__ __forceinline__ int entry_of(int expert) const {
    int entry = 0;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int bits = min(max(expert - i * kWarpSize, 0), kWarpSize);
      const uint32 below = bits == kWarpSize ? 0xffffffffu : (1u << bits) - 1;
      entry += __popc(chosen_by_group[i] & below);
    }
    return entry;
  }
};

template <int kChunks>
__device__ __forceinline__ void route(const RouteParams& p) {
  __shared__ uint32 sets[kMaxLinearTokens][kChunks];
  const int warp = threadIdx.x / kWarpSize;
  const int64 token = static_cast<int64>(blockIdx.x) * kMaxLinearTokens + warp;
  const bool is_there = token < p.num_tokens;
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  Router<kChunks> router(p);
  if (is_there) {
    router.load(token);
    router.choose();
    router.write_weights(token);
  }
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const uint32 set = __ballot_sync(0xffffffffu, router.taken >> i & 1);
    if (router.lane == i) sets[warp][i] = set;
  }
  __syncthreads();
  router.join(sets);
  if (is_there && router.lane < p.top_k) {
    p.entries[token * p.top_k + router.lane] = router.entry_of(router.pick.index);
  }
  int* const chosen = p.chosen + blockIdx.x * static_cast<int64>(1 + p.num_experts);
  const int expert = threadIdx.x;
  if (expert == 0) chosen[0] = router.entry_of(p.num_experts);
  if (expert < p.num_experts && router.entry_of(expert + 1) > router.entry_of(expert)) {
    chosen[1 + router.entry_of(expert)] = expert;
  }
}

}  // namespace attune
