// Pieces of the online softmax, in the log2 domain. Source: Milakov and Gimelshein, 2018.
#pragma once

#include "templates/device/ptx.cuh"

namespace attune {

constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;

__device__ __forceinline__ float negative_infinity() { return -__int_as_float(0x7f800000); }

// Reductions over the four lanes that share a row of an mma accumulator.
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// The maximum to subtract: 0 for a row that has seen no key, since -inf minus -inf is NaN.
__device__ __forceinline__ float finite_or_zero(float row_max) {
  return row_max == negative_infinity() ? 0.0f : row_max;
}

// tanh to about 1e-7: the hardware's tanh.approx is off by up to 5e-4 of the value, 0.02 at a cap
// of 50.
__device__ __forceinline__ float tanh_accurate(float x) {
  return 1.0f - 2.0f * rcp(ex2(2.0f * kLog2E * x) + 1.0f);
}

// Scores are kept as raw q.k, scaled when they are used: one fma gives the exponent. With a cap
// they are capped first. Products are rounded by name (__fmul_rn), so that no compiler contracts
// them otherwise in one kernel than in another: an invariant row has the same bits in all of them.
template <bool kSoftcap>
struct ScoreScale {
  float to_log2;  // of a kept score
  float sm_scale;
  float softcap;

  __device__ __forceinline__ ScoreScale(float scale, float cap)
      : to_log2(kSoftcap ? kLog2E * cap : scale * kLog2E), sm_scale(scale), softcap(cap) {}
  // Raw q.k to the score that is kept.
  __device__ __forceinline__ float keep(float raw) const {
    return kSoftcap ? tanh_accurate(raw * (sm_scale / softcap)) : raw;
  }
  // A kept maximum in log2 units, to be subtracted.
  __device__ __forceinline__ float subtrahend(float kept_max) const {
    return __fmul_rn(finite_or_zero(kept_max), to_log2);
  }
  // Factor on what was summed up below another maximum. Exactly 1 where the maximum has stayed,
  // which the fma of a probability is not: it would add the rounding of the subtrahend. A tile that
  // a row does not see then changes no bit of it, and the output is left alone.
  __device__ __forceinline__ float rescale(float kept_max_before, float subtract) const {
    return ex2(__fmul_rn(kept_max_before, to_log2) - subtract);
  }
  // 2^(score - maximum)
  __device__ __forceinline__ float probability(float kept, float subtract) const {
    return ex2(__fmaf_rn(kept, to_log2, -subtract));
  }
};

}  // namespace attune
