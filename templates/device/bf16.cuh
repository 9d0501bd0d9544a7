// Numbers of bf16: single ones and neighbours in memory.
#pragma once

#include "templates/device/ptx.cuh"

namespace attune {

__device__ __forceinline__ float round_bf16(float x) {
  return __uint_as_float(cvt_bf16x2(x, 0.0f) << 16);
}

// bf16 values that are loaded and stored by one instruction.
template <int kCount>
struct alignas(2 * kCount) PackedBf16 {
  uint32 words[kCount / 2];
};

template <int kCount>
__device__ __forceinline__ void load_bf16(float (&to)[kCount], const uint16* from) {
  const auto packed = *reinterpret_cast<const PackedBf16<kCount>*>(from);
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    to[2 * i] = __uint_as_float(packed.words[i] << 16);
    to[2 * i + 1] = __uint_as_float(packed.words[i] & 0xffff0000u);
  }
}

template <int kCount>
__device__ __forceinline__ void store_bf16(uint16* to, const float (&from)[kCount]) {
  PackedBf16<kCount> packed;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) packed.words[i] = cvt_bf16x2(from[2 * i], from[2 * i + 1]);
  *reinterpret_cast<PackedBf16<kCount>*>(to) = packed;
}

}  // namespace attune
