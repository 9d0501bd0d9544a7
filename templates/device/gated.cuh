// What becomes of a gate and what it lets through.
#pragma once

#include "templates/device/bf16.cuh"
#include "templates/device/ptx.cuh"
#include "templates/device/softmax.cuh"
#include "templates/linear_config.h"

namespace attune {

// z * (1 + tanh(u)) / 2 is z / (1 + exp(-2 u)), without the difference that cancels for u << 0.
__device__ __forceinline__ float gelu_tanh(float z) {
  constexpr float kSqrt2OverPi = 0.79788456080286535588f;
  const float u = kSqrt2OverPi * __fmaf_rn(0.044715f * z * z, z, z);
  return z * rcp(1.0f + ex2(-2.0f * kLog2E * u));
}

__device__ __forceinline__ float silu(float z) { return z * rcp(1.0f + ex2(-kLog2E * z)); }

// Of the unrounded rows of kGeglu and kSwiglu; to be rounded to bf16.
template <LinearEpilogue kEpilogue>
__device__ __forceinline__ float gated(float gate, float up) {
  static_assert(kEpilogue == LinearEpilogue::kGeglu || kEpilogue == LinearEpilogue::kSwiglu);
  const float rounded = round_bf16(gate);
  const float activated = kEpilogue == LinearEpilogue::kGeglu ? gelu_tanh(rounded) : silu(rounded);
  return round_bf16(activated) * round_bf16(up);
}

}  // namespace attune
