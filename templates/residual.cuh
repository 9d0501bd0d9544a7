// Computes  a step of the residual stream and the normed input of what follows (ResidualParams).
// Grid      one CTA a token. Threads: kThreads (residual_threads), each with 8 neighbouring elements: a
//           step is as long as its chain of loads, sums and stores, so the chain has no loops.
// Rounding  to bf16 after the norm, the sum, the scalar and the second norm, as the reference does;
//           in fp32 in between.
// Sync      griddepcontrol_wait: branch and stream are visible. Weights do not change and are loaded
//           before it.
// Bits      of a token depend on its values only.
// Source    transformers' Gemma 4 (Apache-2.0), for what is rounded where.
#pragma once

#include "templates/config.h"
#include "templates/device/bf16.cuh"
#include "templates/device/ptx.cuh"
#include "templates/model_config.h"
#include "templates/model_params.h"

namespace attune {

// A row, of which each thread has kResidualColumns elements.
template <int kThreads>
struct ResidualRow {
  static constexpr int kWarps = kThreads / kWarpSize;
  float values[kResidualColumns];

  __device__ __forceinline__ static int at() { return threadIdx.x * kResidualColumns; }

  __device__ __forceinline__ void load(const uint16* row, int hidden) {
#pragma unroll
    for (int i = 0; i < kResidualColumns; ++i) values[i] = 0.0f;
    if (at() < hidden) load_bf16(values, row + at());
  }
  __device__ __forceinline__ void store(uint16* row, int hidden) const {
    if (at() < hidden) store_bf16(row + at(), values);
  }

  template <typename Change>
  __device__ __forceinline__ void change(const Change& to) {
#pragma unroll
    for (int i = 0; i < kResidualColumns; ++i) values[i] = to(values[i], i);
  }

  // 1 / sqrt(mean of squares + eps), the same in all threads; `shared` has a float for each warp.
  __device__ __forceinline__ float inverse_rms(float* shared, int hidden, float eps) const {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kResidualColumns; ++i) sum = __fmaf_rn(values[i], values[i], sum);
#pragma unroll
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, distance));
    }
    if (threadIdx.x % kWarpSize == 0) shared[threadIdx.x / kWarpSize] = sum;
    __syncthreads();
    sum = shared[0];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) sum = __fadd_rn(sum, shared[i]);
    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, static_cast<float>(hidden)), eps)));
  }

  // bf16(norm * weight), in place.
  __device__ __forceinline__ void norm(const ResidualRow& weight, float* shared, int hidden,
                                       float eps) {
    const float inverse = inverse_rms(shared, hidden, eps);
    change([&](float x, int i) {
      return round_bf16(__fmul_rn(__fmul_rn(x, inverse), weight.values[i]));
    });
  }
};

// h + the norm of the branch.
template <int kThreads>
__device__ __forceinline__ void add_branch(const ResidualParams& p, ResidualRow<kThreads>& h,
                                           ResidualRow<kThreads>& branch,
                                           const ResidualRow<kThreads>& post_weight,
                                           float* shared) {
  if (p.post_weight != nullptr) branch.norm(post_weight, shared, p.hidden, p.eps);
  h.change([&](float x, int i) { return round_bf16(__fadd_rn(x, branch.values[i])); });
}

// The scalar of a step, which does not change either.
__device__ __forceinline__ float scalar_of(const ResidualParams& p) {
  return p.scalar == nullptr ? 1.0f : __uint_as_float(static_cast<uint32>(*p.scalar) << 16);
}

// h * scalar, written; gives back the factor of its norm.
template <int kThreads>
__device__ __forceinline__ float end_step(const ResidualParams& p, ResidualRow<kThreads>& h,
                                          float scalar, float* shared) {
  const int64 token = blockIdx.x;
  h.change([&](float x, int) { return round_bf16(__fmul_rn(x, scalar)); });
  if (p.stream != nullptr) h.store(p.stream + token * p.hidden, p.hidden);
  if (p.tap != nullptr) h.store(p.tap + token * p.tap_stride, p.hidden);
  return h.inverse_rms(shared, p.hidden, p.eps);
}

// out = bf16(h * inverse * weight)
template <int kThreads>
__device__ __forceinline__ void store_normed(const ResidualRow<kThreads>& h, float inverse,
                                             const ResidualRow<kThreads>& weight, uint16* out,
                                             int hidden) {
  ResidualRow<kThreads> normed = h;
  normed.change([&](float x, int i) { return __fmul_rn(__fmul_rn(x, inverse), weight.values[i]); });
  normed.store(out, hidden);
}

template <int kThreads, bool kEmbeds>
__device__ __forceinline__ void residual(const ResidualParams& p) {
  using Row = ResidualRow<kThreads>;
  __shared__ float sums[2][Row::kWarps];
  const int64 token = blockIdx.x;
  Row next_weight;
  next_weight.load(p.next_weight, p.hidden);
  Row post_weight;
  if (!kEmbeds && p.post_weight != nullptr) post_weight.load(p.post_weight, p.hidden);
  const float scalar = kEmbeds ? 1.0f : scalar_of(p);
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();

  Row h;
  if constexpr (kEmbeds) {
    h.load(p.embedding + static_cast<int64>(max(p.tokens[token], 0)) * p.hidden, p.hidden);
    h.change([&](float x, int) { return round_bf16(__fmul_rn(x, p.embedding_scale)); });
  } else {
    h.load(p.from + token * p.from_stride, p.hidden);
    if (p.branch != nullptr) {
      Row branch;
      branch.load(p.branch + token * p.hidden, p.hidden);
      add_branch(p, h, branch, post_weight, sums[0]);
    }
  }
  const float inverse = end_step(p, h, scalar, sums[1]);
  if (p.out != nullptr) {
    store_normed(h, inverse, next_weight, p.out + token * p.out_stride, p.hidden);
  }
}

}  // namespace attune
