// The PTX instructions that need sm_90, one function each, named after the instruction: mbarrier,
// bulk copies, clusters; and wgmma and setmaxnreg, which sm_90a alone has (ATTUNE_ARCH_SM90A).
// Empty for older architectures. Addresses are 32-bit shared-memory addresses, see smem_address();
// "cluster address" means one that mapa() returned.
#pragma once

#include "templates/device/ptx.cuh"

#if __CUDA_ARCH__ >= 900

namespace attune {

// mbarrier: 8 bytes of shared memory, 8-byte aligned. A phase is complete when its arrivals
// and its announced bytes (the transaction count) have all come; the next one begins at once.

// A barrier whose phases take `count` arrivals. fence_mbarrier_init or a CTA barrier has to follow
// before others use it.
__device__ __forceinline__ void mbarrier_init(uint32 mbarrier, uint32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(mbarrier), "r"(count) : "memory");
}

// Ends a barrier: its memory may be used for something else, or initialized again.
__device__ __forceinline__ void mbarrier_inval(uint32 mbarrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(mbarrier) : "memory");
}

// `count` arrivals; releases what the thread did before to those that wait for the phase.
__device__ __forceinline__ void mbarrier_arrive(uint32 mbarrier, uint32 count = 1) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(mbarrier), "r"(count)
               : "memory");
}

// The same at the barrier of another CTA, by its cluster address. Orders accesses of the own CTA
// only: as a cluster-wide release it is three times slower on an H200, and a slot that
// was only read needs none.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32 mbarrier, uint32 count = 1) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0], %1;" ::"r"(mbarrier), "r"(count)
               : "memory");
}

// Announces `bytes` (below 2^20) that bulk copies will bring in this phase; no arrival.
__device__ __forceinline__ void mbarrier_expect_tx(uint32 mbarrier, uint32 bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(mbarrier),
               "r"(bytes)
               : "memory");
}

// Announces bytes, then arrives once.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32 mbarrier, uint32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mbarrier), "r"(bytes)
               : "memory");
}

// Whether the phase of `parity` (0 for the first) is complete; if so, what its arrivals released
// and its copies wrote is visible.
__device__ __forceinline__ bool mbarrier_test_wait_parity(uint32 mbarrier, uint32 parity) {
  uint32 complete;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(complete)
      : "r"(mbarrier), "r"(parity)
      : "memory");
  return complete != 0;
}

// As mbarrier_test_wait_parity, after sleeping for the phase up to a limit of the hardware.
__device__ __forceinline__ bool mbarrier_try_wait_parity(uint32 mbarrier, uint32 parity) {
  uint32 complete;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(complete)
      : "r"(mbarrier), "r"(parity)
      : "memory");
  return complete != 0;
}

// Tries until the phase is complete; traps after 2^20 times, about a second, because a kernel that
// hangs takes the GPU with it. One PTX block: written in C++ the loop made a consumer of 240
// registers spill.
__device__ __forceinline__ void mbarrier_wait_parity(uint32 mbarrier, uint32 parity) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b32 tries;\n"
      "mov.b32 tries, 0;\n"
      "WAIT_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra DONE_%=;\n"
      "add.u32 tries, tries, 1;\n"
      "setp.gt.u32 p, tries, 0x100000;\n"
      "@p trap;\n"
      "bra WAIT_%=;\n"
      "DONE_%=:\n}" ::"r"(mbarrier),
      "r"(parity)
      : "memory");
}

// An arrival when the thread's cp.async copies so far are done. The phase takes one arrival more
// for it, so the count of mbarrier_init leaves it out.
__device__ __forceinline__ void cp_async_mbarrier_arrive(uint32 mbarrier) {
  asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(mbarrier) : "memory");
}

// The same, counted by mbarrier_init as any other arrival.
__device__ __forceinline__ void cp_async_mbarrier_arrive_noinc(uint32 mbarrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(mbarrier) : "memory");
}

// Makes the thread's mbarrier_init visible to the async proxy and to the CTAs of the cluster; a CTA
// or cluster barrier has to follow.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Orders the thread's generic accesses to shared memory before later ones of the async proxy (bulk
// copies, wgmma); for those of other threads a barrier has to follow.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Bulk copies. One thread issues them. Shared addresses are 16-byte aligned, those of boxes
// 128-byte; a swizzle follows the address, so 1024 bytes make a box begin with its first row.

// A row of `bytes` (a multiple of 16) from global to shared memory; its bytes count at `mbarrier`.
__device__ __forceinline__ void cp_async_bulk_load(uint32 smem, const void* global, uint32 bytes,
                                                   uint32 mbarrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(smem),
      "l"(global), "r"(bytes), "r"(mbarrier)
      : "memory");
}

// A row of `bytes` from shared to global memory; part of the thread's current bulk group.
__device__ __forceinline__ void cp_async_bulk_store(void* global, uint32 smem, uint32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(smem), "r"(bytes)
               : "memory");
}

// Closes the thread's current group of bulk stores.
__device__ __forceinline__ void cp_async_bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most kPending of the thread's bulk groups are unfinished.
template <int kPending>
__device__ __forceinline__ void cp_async_bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

// Waits until at most kPending of them have not read all of their shared memory, which may then be
// overwritten.
template <int kPending>
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Fetches a tensor map ahead of its first use.
__device__ __forceinline__ void prefetch_tensormap(const void* tensor_map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(tensor_map) : "memory");
}

// The instruction of each rank. __VA_ARGS__ are operands %0 to %3; the coordinates follow.
#define ATTUNE_TENSOR_COPY(BEFORE, AFTER, ...)                                                    \
  if constexpr (kRank == 1) {                                                                     \
    asm volatile("cp.async.bulk.tensor.1d" BEFORE "{%4}" AFTER ::__VA_ARGS__, "r"(at[0])          \
                 : "memory");                                                                     \
  } else if constexpr (kRank == 2) {                                                              \
    asm volatile("cp.async.bulk.tensor.2d" BEFORE "{%4, %5}" AFTER ::__VA_ARGS__, "r"(at[0]),     \
                 "r"(at[1])                                                                       \
                 : "memory");                                                                     \
  } else if constexpr (kRank == 3) {                                                              \
    asm volatile("cp.async.bulk.tensor.3d" BEFORE "{%4, %5, %6}" AFTER ::__VA_ARGS__, "r"(at[0]), \
                 "r"(at[1]), "r"(at[2])                                                           \
                 : "memory");                                                                     \
  } else if constexpr (kRank == 4) {                                                              \
    asm volatile("cp.async.bulk.tensor.4d" BEFORE "{%4, %5, %6, %7}" AFTER ::__VA_ARGS__,         \
                 "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])                                   \
                 : "memory");                                                                     \
  } else {                                                                                        \
    asm volatile("cp.async.bulk.tensor.5d" BEFORE "{%4, %5, %6, %7, %8}" AFTER ::__VA_ARGS__,     \
                 "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])                       \
                 : "memory");                                                                     \
  }

// The box of a tensor at element coordinates `at` (innermost first, may be negative) to shared
// memory. Elements outside the tensor are filled; the bytes of the whole box count at `mbarrier`.
// at[0] * element bytes is a multiple of 16: an H200 ends the kernel with an illegal instruction
// otherwise. A row that is narrower than the swizzle takes the whole span of it.
template <int kRank>
__device__ __forceinline__ void cp_async_bulk_tensor_load(uint32 smem, const void* tensor_map,
                                                          const int (&at)[kRank], uint32 mbarrier) {
  static_assert(kRank >= 1 && kRank <= 5, "tensor maps have 1 to 5 dimensions");
  ATTUNE_TENSOR_COPY(".shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, ",
                     "], [%2];", "r"(smem), "l"(tensor_map), "r"(mbarrier), "n"(0))
}

// The same for what is read once: its lines are the first that leave L2, and what is used again
// stays.
template <int kRank>
__device__ __forceinline__ void cp_async_bulk_tensor_load_once(uint32 smem, const void* tensor_map,
                                                               const int (&at)[kRank],
                                                               uint32 mbarrier) {
  static_assert(kRank >= 1 && kRank <= 5, "tensor maps have 1 to 5 dimensions");
  uint64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  ATTUNE_TENSOR_COPY(
      ".shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, ",
      "], [%2], %3;", "r"(smem), "l"(tensor_map), "r"(mbarrier), "l"(policy))
}

// The same to every CTA of the cluster whose bit is set in `cta_mask`, at the offsets of `smem` and
// `mbarrier` in each.
template <int kRank>
__device__ __forceinline__ void cp_async_bulk_tensor_load_multicast(
    uint32 smem, const void* tensor_map, const int (&at)[kRank], uint32 mbarrier, uint16 cta_mask) {
  static_assert(kRank >= 1 && kRank <= 5, "tensor maps have 1 to 5 dimensions");
  ATTUNE_TENSOR_COPY(
      ".shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, ",
      "], [%2], %3;", "r"(smem), "l"(tensor_map), "r"(mbarrier), "h"(cta_mask))
}

// A box of shared memory to the tensor, as far as it is inside; part of the thread's current bulk
// group. at[0] * element bytes is a multiple of 16 and no coordinate is negative: an H200 ends the
// kernel with an illegal instruction otherwise. It writes whole 16 bytes at the end of a row too,
// up to 15 more than the tensor has where its rows are no multiple of 16 bytes.
template <int kRank>
__device__ __forceinline__ void cp_async_bulk_tensor_store(const void* tensor_map,
                                                           const int (&at)[kRank], uint32 smem) {
  static_assert(kRank >= 1 && kRank <= 5, "tensor maps have 1 to 5 dimensions");
  ATTUNE_TENSOR_COPY(".global.shared::cta.tile.bulk_group [%1, ", "], [%0];", "r"(smem),
                     "l"(tensor_map), "n"(0), "n"(0))
}
#undef ATTUNE_TENSOR_COPY

// Clusters and single lanes.

// Rank of the CTA in its cluster.
__device__ __forceinline__ uint32 cluster_ctarank() {
  uint32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The cluster address of what CTA `cta_rank` has at shared address `smem`.
__device__ __forceinline__ uint32 mapa(uint32 smem, uint32 cta_rank) {
  uint32 address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(smem), "r"(cta_rank));
  return address;
}

// Comes to the barrier of the cluster without waiting; releases what the thread wrote before. Every
// thread of every CTA, each warp as a whole.
__device__ __forceinline__ void barrier_cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// Waits until all threads of the cluster have come to it; what they wrote before is visible then.
// A CTA must not end while others may still reach into its shared memory.
__device__ __forceinline__ void barrier_cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Shared memory of a CTA of the cluster, by cluster addresses. A cluster barrier orders them.
__device__ __forceinline__ uint32 ld_shared_cluster(uint32 address) {
  uint32 value;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ void ld_shared_cluster_v4(uint32 (&value)[4], uint32 address) {
  asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void st_shared_cluster(uint32 address, uint32 value) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ void st_shared_cluster_v4(uint32 address, const uint32 (&value)[4]) {
  asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value[0]),
               "r"(value[1]), "r"(value[2]), "r"(value[3])
               : "memory");
}

// True in one lane of those in `mask`, which have to be the active ones; always the same lane.
__device__ __forceinline__ bool elect_sync(uint32 mask = 0xffffffffu) {
  uint32 elected;
  asm volatile(
      "{\n.reg .pred p;\n"
      "elect.sync _|p, %1;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(elected)
      : "r"(mask)
      : "memory");
  return elected != 0;
}

// stmatrix: 8x8 bf16 matrices from registers to shared memory, the inverse of ldmatrix; lane l
// gives the address of row l % 8 of matrix l / 8.

__device__ __forceinline__ void stmatrix_x1(uint32 smem, const uint32 (&fragment)[1]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(smem), "r"(fragment[0])
               : "memory");
}
__device__ __forceinline__ void stmatrix_x1_trans(uint32 smem, const uint32 (&fragment)[1]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(smem),
               "r"(fragment[0])
               : "memory");
}
__device__ __forceinline__ void stmatrix_x2(uint32 smem, const uint32 (&fragment)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(smem),
               "r"(fragment[0]), "r"(fragment[1])
               : "memory");
}
__device__ __forceinline__ void stmatrix_x2_trans(uint32 smem, const uint32 (&fragment)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(smem),
               "r"(fragment[0]), "r"(fragment[1])
               : "memory");
}
__device__ __forceinline__ void stmatrix_x4(uint32 smem, const uint32 (&fragment)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem),
               "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3])
               : "memory");
}
__device__ __forceinline__ void stmatrix_x4_trans(uint32 smem, const uint32 (&fragment)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem),
               "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3])
               : "memory");
}

#ifdef ATTUNE_ARCH_SM90A

// Registers. Every warp of a warpgroup executes it; kRegisters is a multiple of 8 from 24 to
// 256. Ignored without __launch_bounds__ (ptxas note C7508).

// Waits until the CTA has registers to spare, then owns kRegisters.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Gives up all above kRegisters.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// wgmma: products of a warpgroup, asynchronous. fence, products, commit_group, wait_group.

// Keeps ordinary reads and writes of an accumulator on their side of a wgmma wait or fence (ptxas
// note C7514).
__device__ __forceinline__ void opaque(float& value) { asm volatile("" : "+f"(value)::"memory"); }
template <int kCount>
__device__ __forceinline__ void opaque(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) opaque(values[i]);
}
__device__ __forceinline__ void opaque(uint32& value) { asm volatile("" : "+r"(value)::"memory"); }

// Keeps what is computed from a descriptor inside the loop: hoisted out of it, descriptors of 64
// bits spill.
__device__ __forceinline__ void opaque(uint64& descriptor) { asm volatile("" : "+l"(descriptor)); }

// Orders register and shared-memory accesses before the first wgmma of a group.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Closes the warpgroup's current group of products.
__device__ __forceinline__ void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most kPending groups are unfinished; the accumulators of the others may be read.
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// wgmma.mma_async m64nNk16 for N = 8, 16, 32, 64, 128, 256, which is twice the size of `d`:
// d = A * B + (kScaleD ? d : 0), bf16 products and fp32 sums. A [64, 16] and B [16, N] are given by
// shared-memory descriptors; A also by four registers in the layout of mma_m16n8k16, warp w of the
// warpgroup rows 16w to 16w + 15. Descriptor: address >> 4 | leading offset >> 4 << 16 |
// stride offset >> 4 << 32 | swizzle << 62 (1 is 128 bytes, 2 is 64, 3 is 32, 0 none). kTrans 1
// reads an operand that is contiguous along M or N, 0 one along K. The accumulators, and A in
// registers, are not to be touched before wgmma_wait_group.
#define ATTUNE_D4_TEXT "%0, %1, %2, %3"
#define ATTUNE_D8_TEXT \
  ATTUNE_D4_TEXT       \
  ", "                 \
  "%4, %5, %6, %7"
#define ATTUNE_D16_TEXT \
  ATTUNE_D8_TEXT        \
  ", "                  \
  "%8, %9, %10, %11, %12, %13, %14, %15"
#define ATTUNE_D32_TEXT \
  ATTUNE_D16_TEXT       \
  ", "                  \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ATTUNE_D64_TEXT                                                                   \
  ATTUNE_D32_TEXT                                                                         \
  ", "                                                                                    \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
  "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ATTUNE_D128_TEXT                                                                     \
  ATTUNE_D64_TEXT                                                                            \
  ", "                                                                                       \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, "    \
  "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "    \
  "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, " \
  "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define ATTUNE_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ATTUNE_D8(i) ATTUNE_D4(i), ATTUNE_D4(i + 4)
#define ATTUNE_D16(i) ATTUNE_D8(i), ATTUNE_D8(i + 8)
#define ATTUNE_D32(i) ATTUNE_D16(i), ATTUNE_D16(i + 16)
#define ATTUNE_D64(i) ATTUNE_D32(i), ATTUNE_D32(i + 32)
#define ATTUNE_D128(i) ATTUNE_D64(i), ATTUNE_D64(i + 64)
#define ATTUNE_WGMMA(N, COUNT, P0, P1, P2, P3, P4, P5, P6)                                   \
  template <int kScaleD = 1, int kTransA = 0, int kTransB = 0>                               \
  __device__ __forceinline__ void wgmma_mma_async(float(&d)[COUNT], uint64 a, uint64 b) {    \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N                                      \
                 "k16.f32.bf16.bf16 {" ATTUNE_D##COUNT##_TEXT "}, %" #P0 ", %" #P1 ", %" #P2 \
                                                              ", 1, 1, %" #P3 ", %" #P4 ";"  \
                 : ATTUNE_D##COUNT(0)                                                        \
                 : "l"(a), "l"(b), "n"(kScaleD), "n"(kTransA), "n"(kTransB));                \
  }                                                                                          \
  template <int kScaleD = 1, int kTransB = 0>                                                \
  __device__ __forceinline__ void wgmma_mma_async(float(&d)[COUNT], const uint32(&a)[4],     \
                                                  uint64 b) {                                \
    asm volatile(                                                                            \
        "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" ATTUNE_D##COUNT##_TEXT  \
        "}, {%" #P0 ", %" #P1 ", %" #P2 ", %" #P3 "}, %" #P4 ", %" #P5 ", 1, 1, %" #P6 ";"   \
        : ATTUNE_D##COUNT(0)                                                                 \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kScaleD), "n"(kTransB));   \
  }
ATTUNE_WGMMA(8, 4, 4, 5, 6, 7, 8, 9, 10)
ATTUNE_WGMMA(16, 8, 8, 9, 10, 11, 12, 13, 14)
ATTUNE_WGMMA(32, 16, 16, 17, 18, 19, 20, 21, 22)
ATTUNE_WGMMA(64, 32, 32, 33, 34, 35, 36, 37, 38)
ATTUNE_WGMMA(128, 64, 64, 65, 66, 67, 68, 69, 70)
ATTUNE_WGMMA(256, 128, 128, 129, 130, 131, 132, 133, 134)
#undef ATTUNE_WGMMA
#undef ATTUNE_D4
#undef ATTUNE_D4_TEXT
#undef ATTUNE_D8
#undef ATTUNE_D8_TEXT
#undef ATTUNE_D16
#undef ATTUNE_D16_TEXT
#undef ATTUNE_D32
#undef ATTUNE_D32_TEXT
#undef ATTUNE_D64
#undef ATTUNE_D64_TEXT
#undef ATTUNE_D128
#undef ATTUNE_D128_TEXT

#endif  // ATTUNE_ARCH_SM90A

}  // namespace attune

#endif  // __CUDA_ARCH__ >= 900
