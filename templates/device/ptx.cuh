// Every PTX instruction of the templates, one function each, named after the instruction. Those
// that need sm_90 are in ptx_hopper.cuh.
#pragma once

#include "templates/int_types.h"

namespace attune {

// Shared-memory address as the 32-bit number that PTX instructions take.
__device__ __forceinline__ uint32 smem_address(const void* pointer) {
  return static_cast<uint32>(__cvta_generic_to_shared(pointer));
}

// Keeps the arithmetic of an address or offset in front of what follows, where the compiler would
// move it to its use: behind a wait.
template <typename T>
__device__ __forceinline__ void compute_here(T& value) {
  static_assert(sizeof(T) == 8, "a register pair");
  asm volatile("" : "+l"(value));
}

// Waits at a named barrier until `num_threads` threads (a multiple of 32) have come to it by
// bar_sync or bar_arrive; what they wrote before is visible then. Barrier 0 is that of
// __syncthreads.
__device__ __forceinline__ void bar_sync(int barrier, int num_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(num_threads) : "memory");
}

// Comes to a named barrier without waiting; publishes what the thread wrote before to those that
// wait.
__device__ __forceinline__ void bar_arrive(int barrier, int num_threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(num_threads) : "memory");
}

// Copies 16 bytes to shared memory without passing registers; reads `src_bytes` (0 or 16) of them
// and writes zeros for the rest. Part of the current cp.async group. 128-byte L2 prefetch costs
// nothing on an H200.
__device__ __forceinline__ void cp_async_16(uint32 smem, const void* global, uint32 src_bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(smem), "l"(global),
               "r"(src_bytes)
               : "memory");
}

// The same without zeros: a number of bytes that is not known takes 20 instructions more.
__device__ __forceinline__ void cp_async_16(uint32 smem, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(smem), "l"(global)
               : "memory");
}

// Closes the thread's current group of copies.
__device__ __forceinline__ void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kPending of the thread's groups are unfinished. Other threads' copies need a
// barrier on top.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Loads one 8x8 bf16 matrix; lane l below 8 gives the address of row l. The addresses of the other
// lanes do not count.
__device__ __forceinline__ void ldmatrix_x1(uint32 (&fragment)[1], uint32 smem) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(fragment[0])
               : "r"(smem)
               : "memory");
}

// As ldmatrix_x1, the matrix transposed on the way.
__device__ __forceinline__ void ldmatrix_x1_trans(uint32 (&fragment)[1], uint32 smem) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(fragment[0])
               : "r"(smem)
               : "memory");
}

// Loads two 8x8 bf16 matrices; lane l below 16 gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void ldmatrix_x2(uint32 (&fragment)[2], uint32 smem) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(fragment[0]), "=r"(fragment[1])
               : "r"(smem)
               : "memory");
}

// As ldmatrix_x2, each matrix transposed on the way.
__device__ __forceinline__ void ldmatrix_x2_trans(uint32 (&fragment)[2], uint32 smem) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(fragment[0]), "=r"(fragment[1])
               : "r"(smem)
               : "memory");
}

// Loads four 8x8 bf16 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void ldmatrix_x4(uint32 (&fragment)[4], uint32 smem) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(smem)
               : "memory");
}

// As ldmatrix_x4, each matrix transposed on the way.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32 (&fragment)[4], uint32 smem) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(smem)
               : "memory");
}

// Transposes an 8x8 bf16 matrix whose row r is held by lanes 4r to 4r + 3.
__device__ __forceinline__ uint32 movmatrix_trans(uint32 fragment) {
  uint32 transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(fragment));
  return transposed;
}

// d += a * b for a 16x16 bf16 tile `a` (row-major fragment) and a 16x8 tile `b` (column fragment),
// fp32 sums.
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32 (&a)[4], uint32 b0,
                                             uint32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 2^x to 2 ulp; 0 for -inf.
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// log2(x) to about 1 ulp of the result; -inf for 0.
__device__ __forceinline__ float lg2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The larger one; NaN if either is, where fmaxf takes the other.
__device__ __forceinline__ float max_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

// 1/x to 1 ulp, without the branches of an IEEE division.
__device__ __forceinline__ float rcp(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// (word & mask) | bits in one instruction, which two immediate operands do not fit into: the compiler
// makes two of constants.
__device__ __forceinline__ uint32 and_or(uint32 word, uint32 mask, uint32 bits) {
  uint32 merged;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(merged) : "r"(word), "r"(mask), "r"(bits));
  return merged;
}

// Two floats rounded to nearest even bf16, `low` in the lower half.
__device__ __forceinline__ uint32 cvt_bf16x2(float low, float high) {
  uint32 packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// Lets the kernels launched behind this one with programmatic serialization start early. Nothing
// before sm_90.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernels in front have ended and their writes are visible. Nothing before sm_90,
// where a launch is always behind the end of the one in front.
__device__ __forceinline__ void griddepcontrol_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// 16 bytes past L1: for data that is read once.
__device__ __forceinline__ void ld_global_cg_v4(uint32 (&value)[4], const void* global) {
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value[0]), "=r"(value[1]), "=r"(value[2]), "=r"(value[3])
               : "l"(global)
               : "memory");
}

}  // namespace attune
