// Shared-memory operands of wgmma in panels of 64 columns with the 128-byte swizzle, as bulk copies
// with a tensor map write them, and the roles of a kernel's warpgroups.
#pragma once

#include "templates/config.h"
#include "templates/device/mma.cuh"
#include "templates/device/ptx_hopper.cuh"

namespace attune {

constexpr int kWarpGroupThreads = 128;
constexpr int kWarpGroupWarps = kWarpGroupThreads / kWarpSize;
constexpr int kSwizzleBytes = 1024;  // panels begin at multiples of it

// Byte offset of a 16-byte chunk in a panel: the swizzle of ldmatrix and of bulk copies alike.
__device__ __forceinline__ uint32 panel_offset(int row, int chunk) {
  return swizzled_offset<kPanelColumns>(row, chunk);
}

// Descriptors (PTX ISA, wgmma): start >> 4, leading offset >> 4 << 16, 1024 bytes between groups of
// 8 rows, 128-byte swizzle.
constexpr uint64 kPanelDescriptor =
    static_cast<uint64>(kSwizzleBytes >> 4) << 32 | static_cast<uint64>(1) << 62;

// The same operand `bytes` further on. Its upper half is a constant: a sum of 64 bits would take four
// instructions more for each product.
__device__ __forceinline__ uint64 moved(uint64 descriptor, int bytes) {
  return kPanelDescriptor | (static_cast<uint32>(descriptor) + (bytes >> 4));
}

// Operand that is contiguous along k: a step of 16 is kStepBytes inside a panel.
constexpr int kStepBytes = kMmaDepth * kBytesPerElement;
__device__ __forceinline__ uint64 row_descriptor(uint32 panel) {
  return kPanelDescriptor | panel >> 4;
}

// B operand that is contiguous along N (V, whose k are tokens): the panels of `panel_bytes` are
// 64 columns of N each, a step of 16 tokens is kTokenStepBytes.
constexpr int kTokenStepBytes = kMmaDepth * kPanelBytes;
__device__ __forceinline__ uint64 token_descriptor(uint32 panel, int panel_bytes) {
  return kPanelDescriptor | static_cast<uint64>(panel_bytes >> 4) << 16 | panel >> 4;
}

// Behind the wait for products that read P from registers: a use of it. Products read registers after
// they were issued, but ptxas gives them to something else where it sees no use behind that [NVRTC 13.0].
// P is bf16 and never negative, nor is its sum, which keeps its sign. (A trap made ptxas serialize the
// products, and under memcheck a store, though never executed, spoiled scores that were under way.)
template <int kSteps>
__device__ __forceinline__ void keep_until_here(const uint32 (&probabilities)[kSteps][4],
                                                float& row_sum) {
  uint32 any = 0;
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32 pair = probabilities[k][i];
      opaque(pair);  // no use of it moves in front of the wait
      any |= pair;
    }
  }
  row_sum = __uint_as_float(__float_as_uint(row_sum) | (any & 0x80000000u));
}

// Which slot of a ring of kSlots a role is at, and the parity of its current phase.
template <int kSlots>
struct RingPlace {
  int slot = 0;
  uint32 parity = 0;

  __device__ __forceinline__ void advance() {
    if (++slot < kSlots) return;
    slot = 0;
    parity ^= 1;
  }
};

// One arrival for the whole warp, after all of its lanes.
__device__ __forceinline__ void warp_arrive(uint32 mbarrier, int lane) {
  __syncwarp();
  if (lane == 0) mbarrier_arrive(mbarrier);
}

}  // namespace attune
