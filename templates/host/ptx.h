// The functions of templates/device/ptx.cuh on the host device.
#pragma once

#include "templates/host/language.h"

namespace attune {

__device__ __forceinline__ uint32 smem_address(const void* pointer) {
  return attune_host_abi->smem_address(pointer);
}

template <typename T>
__device__ __forceinline__ void compute_here(T&) {}

__device__ __forceinline__ void cp_async_16(uint32 smem, const void* global, uint32 src_bytes) {
  attune_host_abi->cp_async(smem, global, 16, src_bytes);
}
__device__ __forceinline__ void cp_async_16(uint32 smem, const void* global) {
  attune_host_abi->cp_async(smem, global, 16, 16);
}
__device__ __forceinline__ void cp_async_commit_group() {
  attune_host_abi->cp_async_commit_group();
}
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  attune_host_abi->cp_async_wait_group(kPending);
}

__device__ __forceinline__ void ldmatrix_x4(uint32 (&fragment)[4], uint32 smem) {
  attune_host_abi->ldmatrix(fragment, 4, 0, smem);
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32 (&fragment)[4], uint32 smem) {
  attune_host_abi->ldmatrix(fragment, 4, 1, smem);
}

__device__ __forceinline__ void ldmatrix_x2(uint32 (&fragment)[2], uint32 smem) {
  attune_host_abi->ldmatrix(fragment, 2, 0, smem);
}
__device__ __forceinline__ void ldmatrix_x2_trans(uint32 (&fragment)[2], uint32 smem) {
  attune_host_abi->ldmatrix(fragment, 2, 1, smem);
}
__device__ __forceinline__ void ldmatrix_x1(uint32 (&fragment)[1], uint32 smem) {
  attune_host_abi->ldmatrix(fragment, 1, 0, smem);
}
__device__ __forceinline__ void ldmatrix_x1_trans(uint32 (&fragment)[1], uint32 smem) {
  attune_host_abi->ldmatrix(fragment, 1, 1, smem);
}
__device__ __forceinline__ uint32 movmatrix_trans(uint32 fragment) {
  return attune_host_abi->movmatrix_trans(fragment);
}

__device__ __forceinline__ void bar_sync(int barrier, int num_threads) {
  attune_host_abi->barrier_sync(barrier, num_threads);
}
__device__ __forceinline__ void bar_arrive(int barrier, int num_threads) {
  attune_host_abi->barrier_arrive(barrier, num_threads);
}

__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32 (&a)[4], uint32 b0,
                                             uint32 b1) {
  attune_host_abi->mma_m16n8k16_bf16(d, a, b0, b1);
}

__device__ __forceinline__ float ex2(float x) { return attune_host_abi->ex2(x); }
__device__ __forceinline__ float lg2(float x) { return attune_host_abi->lg2(x); }
__device__ __forceinline__ float rcp(float x) { return attune_host_abi->rcp(x); }
__device__ __forceinline__ float max_nan(float a, float b) {
  if (a != a || b != b) return __uint_as_float(0x7fffffffu);
  return fmaxf(a, b);
}
__device__ __forceinline__ uint32 and_or(uint32 word, uint32 mask, uint32 bits) {
  return (word & mask) | bits;
}
__device__ __forceinline__ uint32 cvt_bf16x2(float low, float high) {
  return attune_host_abi->cvt_bf16x2(low, high);
}

// Launches are in order on the host.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {}
__device__ __forceinline__ void griddepcontrol_wait() {}

__device__ __forceinline__ void ld_global_cg_v4(uint32 (&value)[4], const void* global) {
  const uint4 loaded = *static_cast<const uint4*>(global);
  value[0] = loaded.x;
  value[1] = loaded.y;
  value[2] = loaded.z;
  value[3] = loaded.w;
}

}  // namespace attune
