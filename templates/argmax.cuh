// Finds    the first index of the largest value of each row. NaN is never the largest; a row of
//          nothing else gives -1.
// Grid     one CTA a row. Threads: kArgmaxThreads, each with every kArgmaxThreads-th column.
#pragma once

#include "templates/config.h"
#include "templates/device/ptx.cuh"
#include "templates/device/softmax.cuh"
#include "templates/model_config.h"
#include "templates/model_params.h"

namespace attune {

struct Largest {
  float value;
  int index;

  // Whether `other` comes before this one.
  __device__ __forceinline__ bool yields_to(const Largest& other) const {
    return other.value > value || (other.value == value && other.index < index);
  }
};

__device__ __forceinline__ void argmax(const ArgmaxParams& p) {
  __shared__ Largest of_warps[kArgmaxThreads / kWarpSize];
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const float* const row = p.logits + blockIdx.x * p.stride;
  constexpr int kNone = 0x7fffffff;
  Largest best{negative_infinity(), kNone};
  const auto consider = [&](const Largest& other) {
    if (best.yields_to(other)) best = other;
  };
  for (int at = threadIdx.x; at < p.columns; at += kArgmaxThreads) consider({row[at], at});
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    consider({__shfl_xor_sync(0xffffffffu, best.value, distance),
              __shfl_xor_sync(0xffffffffu, best.index, distance)});
  }
  if (threadIdx.x % kWarpSize == 0) of_warps[threadIdx.x / kWarpSize] = best;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kArgmaxThreads / kWarpSize; ++i) consider(of_warps[i]);
  const int index = best.index == kNone ? -1 : best.index;
  p.out[blockIdx.x] = p.map == nullptr || index < 0 ? index : p.map[index];
}

}  // namespace attune
