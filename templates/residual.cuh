// Computes  a step of the residual stream and the normed input of what follows (ResidualParams).
// Grid      one CTA a token. Threads: kResidualThreads.
// Registers a thread has chunks of 8 neighbouring elements, kChunks of them, a CTA's width apart.
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

template <int kChunks>
struct ResidualRow {
  float values[kChunks][8];

  // Element of chunk `i`, and whether the row has it.
  __device__ __forceinline__ static int at(int i) {
    return (i * kResidualThreads + threadIdx.x) * 8;
  }

  __device__ __forceinline__ void load(const uint16* row, int hidden) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) values[i][j] = 0.0f;
      if (at(i) < hidden) load_bf16(values[i], row + at(i));
    }
  }
  __device__ __forceinline__ void store(uint16* row, int hidden) const {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (at(i) < hidden) store_bf16(row + at(i), values[i]);
    }
  }

  template <typename Change>
  __device__ __forceinline__ void change(const Change& to) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) values[i][j] = to(values[i][j], i, j);
    }
  }

  // 1 / sqrt(mean of squares + eps), the same in all threads; `shared` has a float for each warp.
  __device__ __forceinline__ float inverse_rms(float* shared, int hidden, float eps) const {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) sum = __fmaf_rn(values[i][j], values[i][j], sum);
    }
#pragma unroll
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, distance));
    }
    if (threadIdx.x % kWarpSize == 0) shared[threadIdx.x / kWarpSize] = sum;
    __syncthreads();
    sum = shared[0];
#pragma unroll
    for (int i = 1; i < kResidualThreads / kWarpSize; ++i) sum = __fadd_rn(sum, shared[i]);
    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, static_cast<float>(hidden)), eps)));
  }

  // bf16(norm * weight), in place.
  __device__ __forceinline__ void norm(const ResidualRow& weight, float* shared, int hidden,
                                       float eps) {
    const float inverse = inverse_rms(shared, hidden, eps);
    change([&](float x, int i, int j) {
      return round_bf16(__fmul_rn(__fmul_rn(x, inverse), weight.values[i][j]));
    });
  }
};

// h + the norm of the branch.
template <int kChunks>
__device__ __forceinline__ void add_branch(const ResidualParams& p, ResidualRow<kChunks>& h,
                                           ResidualRow<kChunks>& branch,
                                           const ResidualRow<kChunks>& post_weight, float* shared) {
  if (p.post_weight != nullptr) branch.norm(post_weight, shared, p.hidden, p.eps);
  h.change([&](float x, int i, int j) { return round_bf16(__fadd_rn(x, branch.values[i][j])); });
}

// h * the scalar (null: 1), written; gives back the factor of its norm.
template <int kChunks>
__device__ __forceinline__ float end_step(const ResidualParams& p, ResidualRow<kChunks>& h,
                                          const uint16* scalar, float* shared) {
  const int64 token = blockIdx.x;
  if (scalar != nullptr) {
    const float factor = __uint_as_float(static_cast<uint32>(*scalar) << 16);
    h.change([&](float x, int, int) { return round_bf16(__fmul_rn(x, factor)); });
  }
  if (p.stream != nullptr) h.store(p.stream + token * p.hidden, p.hidden);
  if (p.tap != nullptr) h.store(p.tap + token * p.tap_stride, p.hidden);
  return h.inverse_rms(shared, p.hidden, p.eps);
}

// out = bf16(h * inverse * weight)
template <int kChunks>
__device__ __forceinline__ void store_normed(const ResidualRow<kChunks>& h, float inverse,
                                             const ResidualRow<kChunks>& weight, uint16* out,
                                             int hidden) {
  ResidualRow<kChunks> normed = h;
  normed.change(
      [&](float x, int i, int j) { return __fmul_rn(__fmul_rn(x, inverse), weight.values[i][j]); });
  normed.store(out, hidden);
}

template <int kChunks, bool kEmbeds>
__device__ __forceinline__ void residual(const ResidualParams& p) {
  using Row = ResidualRow<kChunks>;
  __shared__ float sums[2][kResidualThreads / kWarpSize];
  const int64 token = blockIdx.x;
  Row next_weight;
  next_weight.load(p.next_weight, p.hidden);
  Row post_weight;
  if (!kEmbeds && p.post_weight != nullptr) post_weight.load(p.post_weight, p.hidden);
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();

  Row h;
  if constexpr (kEmbeds) {
    h.load(p.embedding + static_cast<int64>(max(p.tokens[token], 0)) * p.hidden, p.hidden);
    h.change([&](float x, int, int) { return round_bf16(__fmul_rn(x, p.embedding_scale)); });
  } else {
    h.load(p.from + token * p.from_stride, p.hidden);
    if (p.branch != nullptr) {
      Row branch;
      branch.load(p.branch + token * p.hidden, p.hidden);
      add_branch(p, h, branch, post_weight, sums[0]);
    }
  }
  const float inverse = end_step(p, h, kEmbeds ? nullptr : p.scalar, sums[1]);
  if (p.out != nullptr) {
    store_normed(h, inverse, next_weight, p.out + token * p.out_stride, p.hidden);
  }
}

}  // namespace attune
