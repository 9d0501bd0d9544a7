// The functions of templates/device/ptx_hopper.cuh on the host device, which has all of them.
#pragma once

#include "templates/host/ptx.h"

namespace attune {

__device__ __forceinline__ void mbarrier_init(uint32 mbarrier, uint32 count) {
  attune_host_abi->mbarrier_init(mbarrier, count);
}
__device__ __forceinline__ void mbarrier_inval(uint32 mbarrier) {
  attune_host_abi->mbarrier_invalidate(mbarrier);
}
__device__ __forceinline__ void mbarrier_arrive(uint32 mbarrier, uint32 count = 1) {
  attune_host_abi->mbarrier_arrive(mbarrier, count);
}
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32 mbarrier, uint32 count = 1) {
  attune_host_abi->mbarrier_arrive(mbarrier, count);
}
__device__ __forceinline__ void mbarrier_expect_tx(uint32 mbarrier, uint32 bytes) {
  attune_host_abi->mbarrier_expect_tx(mbarrier, bytes);
}
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32 mbarrier, uint32 bytes) {
  attune_host_abi->mbarrier_expect_tx(mbarrier, bytes);
  attune_host_abi->mbarrier_arrive(mbarrier, 1);
}
__device__ __forceinline__ bool mbarrier_test_wait_parity(uint32 mbarrier, uint32 parity) {
  return attune_host_abi->mbarrier_test_wait(mbarrier, parity) != 0;
}
__device__ __forceinline__ bool mbarrier_try_wait_parity(uint32 mbarrier, uint32 parity) {
  return attune_host_abi->mbarrier_try_wait(mbarrier, parity) != 0;
}
// Without a limit: the host device reports a wait that nothing can end.
__device__ __forceinline__ void mbarrier_wait_parity(uint32 mbarrier, uint32 parity) {
  while (attune_host_abi->mbarrier_try_wait(mbarrier, parity) == 0) {
  }
}
__device__ __forceinline__ void cp_async_mbarrier_arrive(uint32 mbarrier) {
  attune_host_abi->cp_async_mbarrier_arrive(mbarrier, 0);
}
__device__ __forceinline__ void cp_async_mbarrier_arrive_noinc(uint32 mbarrier) {
  attune_host_abi->cp_async_mbarrier_arrive(mbarrier, 1);
}

// A barrier is initialized for everybody at once.
__device__ __forceinline__ void fence_mbarrier_init() {}
__device__ __forceinline__ void fence_proxy_async() { attune_host_abi->fence_proxy_async(); }

__device__ __forceinline__ void cp_async_bulk_load(uint32 smem, const void* global, uint32 bytes,
                                                   uint32 mbarrier) {
  host::BulkCopy copy{};
  copy.smem = smem;
  copy.global = global;
  copy.bytes = bytes;
  copy.mbarrier = mbarrier;
  attune_host_abi->bulk_load(&copy);
}
__device__ __forceinline__ void cp_async_bulk_store(void* global, uint32 smem, uint32 bytes) {
  host::BulkCopy copy{};
  copy.smem = smem;
  copy.global = global;
  copy.bytes = bytes;
  attune_host_abi->bulk_store(&copy);
}
__device__ __forceinline__ void cp_async_bulk_commit_group() {
  attune_host_abi->bulk_commit_group();
}
template <int kPending>
__device__ __forceinline__ void cp_async_bulk_wait_group() {
  attune_host_abi->bulk_wait_group(kPending, 0);
}
template <int kPending>
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
  attune_host_abi->bulk_wait_group(kPending, 1);
}

__device__ __forceinline__ void prefetch_tensormap(const void*) {}

namespace host {

template <int kRank>
inline BulkCopy box_copy(uint32 smem, const void* tensor_map, const int (&at)[kRank]) {
  static_assert(kRank >= 1 && kRank <= kMaxTensorRank, "tensor maps have 1 to 5 dimensions");
  BulkCopy copy{};
  copy.smem = smem;
  copy.tensor_map = tensor_map;
  copy.rank = kRank;
  for (int i = 0; i < kRank; ++i) copy.coordinates[i] = at[i];
  return copy;
}

// d = A * B + (scale_d ? d : 0); A in registers where `a` is not null.
template <int kCount>
inline void multiply(float (&d)[kCount], const uint32* a, uint64 a_descriptor, uint64 b_descriptor,
                     int scale_d, int trans_a, int trans_b) {
  Wgmma operation{};
  operation.d = d;
  operation.n = 2 * kCount;
  operation.a = a;
  operation.a_descriptor = a_descriptor;
  operation.b_descriptor = b_descriptor;
  operation.scale_d = scale_d;
  operation.scale_a = 1;
  operation.scale_b = 1;
  operation.trans_a = trans_a;
  operation.trans_b = trans_b;
  attune_host_abi->wgmma(&operation);
}

}  // namespace host

template <int kRank>
__device__ __forceinline__ void cp_async_bulk_tensor_load(uint32 smem, const void* tensor_map,
                                                          const int (&at)[kRank], uint32 mbarrier) {
  host::BulkCopy copy = host::box_copy(smem, tensor_map, at);
  copy.mbarrier = mbarrier;
  attune_host_abi->bulk_load(&copy);
}
template <int kRank>
__device__ __forceinline__ void cp_async_bulk_tensor_load_once(uint32 smem, const void* tensor_map,
                                                               const int (&at)[kRank],
                                                               uint32 mbarrier) {
  cp_async_bulk_tensor_load(smem, tensor_map, at, mbarrier);
}
template <int kRank>
__device__ __forceinline__ void cp_async_bulk_tensor_load_multicast(
    uint32 smem, const void* tensor_map, const int (&at)[kRank], uint32 mbarrier, uint16 cta_mask) {
  host::BulkCopy copy = host::box_copy(smem, tensor_map, at);
  copy.mbarrier = mbarrier;
  copy.cta_mask = cta_mask;
  attune_host_abi->bulk_load(&copy);
}
template <int kRank>
__device__ __forceinline__ void cp_async_bulk_tensor_store(const void* tensor_map,
                                                           const int (&at)[kRank], uint32 smem) {
  const host::BulkCopy copy = host::box_copy(smem, tensor_map, at);
  attune_host_abi->bulk_store(&copy);
}

__device__ __forceinline__ uint32 cluster_ctarank() {
  return attune_host_abi->place()->cluster_rank;
}
__device__ __forceinline__ uint32 mapa(uint32 smem, uint32 cta_rank) {
  return attune_host_abi->map_shared_rank(smem, cta_rank);
}
__device__ __forceinline__ void barrier_cluster_arrive() { attune_host_abi->cluster_arrive(); }
__device__ __forceinline__ void barrier_cluster_wait() { attune_host_abi->cluster_wait(); }

__device__ __forceinline__ uint32 ld_shared_cluster(uint32 address) {
  return *static_cast<const uint32*>(attune_host_abi->cluster_pointer(address));
}
__device__ __forceinline__ void ld_shared_cluster_v4(uint32 (&value)[4], uint32 address) {
  const uint4 loaded = *static_cast<const uint4*>(attune_host_abi->cluster_pointer(address));
  value[0] = loaded.x;
  value[1] = loaded.y;
  value[2] = loaded.z;
  value[3] = loaded.w;
}
__device__ __forceinline__ void st_shared_cluster(uint32 address, uint32 value) {
  *static_cast<uint32*>(attune_host_abi->cluster_pointer(address)) = value;
}
__device__ __forceinline__ void st_shared_cluster_v4(uint32 address, const uint32 (&value)[4]) {
  *static_cast<uint4*>(attune_host_abi->cluster_pointer(address)) =
      make_uint4(value[0], value[1], value[2], value[3]);
}

__device__ __forceinline__ bool elect_sync(uint32 mask = 0xffffffffu) {
  return attune_host_abi->elect(mask) != 0;
}

__device__ __forceinline__ void stmatrix_x1(uint32 smem, const uint32 (&fragment)[1]) {
  attune_host_abi->stmatrix(fragment, 1, 0, smem);
}
__device__ __forceinline__ void stmatrix_x1_trans(uint32 smem, const uint32 (&fragment)[1]) {
  attune_host_abi->stmatrix(fragment, 1, 1, smem);
}
__device__ __forceinline__ void stmatrix_x2(uint32 smem, const uint32 (&fragment)[2]) {
  attune_host_abi->stmatrix(fragment, 2, 0, smem);
}
__device__ __forceinline__ void stmatrix_x2_trans(uint32 smem, const uint32 (&fragment)[2]) {
  attune_host_abi->stmatrix(fragment, 2, 1, smem);
}
__device__ __forceinline__ void stmatrix_x4(uint32 smem, const uint32 (&fragment)[4]) {
  attune_host_abi->stmatrix(fragment, 4, 0, smem);
}
__device__ __forceinline__ void stmatrix_x4_trans(uint32 smem, const uint32 (&fragment)[4]) {
  attune_host_abi->stmatrix(fragment, 4, 1, smem);
}

// A thread has as many registers as it wants.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {}

// The table's functions are calls: nothing moves over them.
__device__ __forceinline__ void opaque(float&) {}
template <int kCount>
__device__ __forceinline__ void opaque(float (&)[kCount]) {}
__device__ __forceinline__ void opaque(uint32&) {}
__device__ __forceinline__ void opaque(uint64&) {}

__device__ __forceinline__ void wgmma_fence() { attune_host_abi->wgmma_fence(); }
__device__ __forceinline__ void wgmma_commit_group() { attune_host_abi->wgmma_commit_group(); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  attune_host_abi->wgmma_wait_group(kPending);
}

template <int kScaleD = 1, int kTransA = 0, int kTransB = 0, int kCount>
__device__ __forceinline__ void wgmma_mma_async(float (&d)[kCount], uint64 a, uint64 b) {
  host::multiply(d, nullptr, a, b, kScaleD, kTransA, kTransB);
}
template <int kScaleD = 1, int kTransB = 0, int kCount>
__device__ __forceinline__ void wgmma_mma_async(float (&d)[kCount], const uint32 (&a)[4],
                                                uint64 b) {
  host::multiply(d, a, 0, b, kScaleD, 0, kTransB);
}

}  // namespace attune
