// What a kernel that runs on the host device asks of it: one table of functions, compiled into the
// library and into every kernel. The functions have the semantics of the PTX instructions and CUDA
// built-ins that they are named after (PTX ISA 9.0). Compiled by the host compiler only.
#pragma once

#include "templates/int_types.h"

namespace attune::host {

// Changes whenever the table or a struct below changes: a kernel of another version is not loaded.
constexpr int kAbiVersion = 1;

constexpr int kMaxTensorRank = 5;
// Dynamic shared memory of a CTA: what sm_90 gives with opt-in, aligned for every swizzle.
constexpr int kMaxSmemBytes = 232448;
constexpr int kSmemAlignment = 1024;
// Offset in a cluster address of the CTA's rank plus one; below it is the offset in that CTA's
// shared window.
constexpr int kClusterRankShift = 24;

struct Index3 {
  unsigned x, y, z;
};

// Where a thread is. Constant for the life of a thread.
struct Place {
  Index3 thread_idx, block_idx, block_dim, grid_dim;
  Index3 cluster_dim;     // in CTAs; 1, 1, 1 without clusters
  unsigned cluster_rank;  // of this CTA in its cluster
  unsigned lane, warp;
};

enum class Vote : int { kAll, kAny, kBallot };
enum class Shuffle : int { kIndex, kUp, kDown, kXor };
enum class Atomic : int { kAdd, kMin, kMax, kExchange, kAnd, kOr, kXor };
enum class Number : int { kUint32, kInt32, kUint64, kFloat };

// One wgmma.mma_async of bf16 operands with fp32 sums: d [64, n] += A [64, 16] * B [16, n].
struct Wgmma {
  float* d;         // n / 2 accumulators of this thread
  int n;            // 8 to 256 in steps of 8
  const uint32* a;  // four registers of A; nullptr: A is in shared memory
  uint64 a_descriptor;
  uint64 b_descriptor;
  int scale_d;  // 0: d = A * B
  int scale_a;  // 1 or -1
  int scale_b;
  int trans_a;  // 1: the operand is MN-major
  int trans_b;
};

// One cp.async.bulk: a row of bytes, or a box of a tensor map. Shared and barrier addresses may be
// of another CTA of the cluster.
struct BulkCopy {
  uint32 smem;                      // destination of a load, source of a store
  const void* global;               // of a row of bytes; the destination for a store
  uint32 bytes;                     // of a row of bytes, a multiple of 16
  const void* tensor_map;           // of a box; nullptr for a row of bytes
  int rank;                         // of the tensor
  int coordinates[kMaxTensorRank];  // innermost first, in elements
  uint32 mbarrier;                  // that gets complete_tx; 0 for a store
  // CTAs of the cluster that receive it at the same offsets; 0: only the one `smem` is in.
  uint32 cta_mask;
};

struct Abi {
  const Place* (*place)();

  // Shared memory. An address is an offset in the CTA's window, below 2^18.
  uint32 (*smem_address)(const void* pointer);
  uint32 (*map_shared_rank)(uint32 smem, uint32 cta_rank);  // mapa: a cluster address
  void* (*cluster_pointer)(uint32 address);                 // generic pointer of a cluster address

  // CTA and warp barriers.
  void (*barrier_sync)(int barrier, int num_threads);  // bar.sync; num_threads 0: all of the CTA
  void (*barrier_arrive)(int barrier, int num_threads);
  void (*sync_warp)(uint32 mask);
  void (*cluster_arrive)();
  void (*cluster_wait)();

  // Warp operations; every lane of `mask` (all 32 where there is none) has to take part.
  uint32 (*vote)(uint32 mask, Vote kind, int predicate);
  uint64 (*shuffle)(uint32 mask, Shuffle kind, uint64 value, int lane_or_delta, int width);
  int (*elect)(uint32 mask);  // 1 in one lane, the lowest
  void (*ldmatrix)(uint32* fragment, int count, int trans, uint32 smem);  // count 1, 2, 4
  void (*stmatrix)(const uint32* fragment, int count, int trans, uint32 smem);
  uint32 (*movmatrix_trans)(uint32 fragment);
  void (*mma_m16n8k16_bf16)(float* d, const uint32* a, uint32 b0, uint32 b1);  // d += a * b

  // Scalar arithmetic that hardware approximates.
  float (*ex2)(float x);
  float (*lg2)(float x);
  float (*rcp)(float x);
  float (*tanh)(float x);
  uint32 (*cvt_bf16x2)(float low, float high);

  // cp.async of the thread.
  void (*cp_async)(uint32 smem, const void* global, uint32 bytes, uint32 src_bytes);
  void (*cp_async_commit_group)();
  void (*cp_async_wait_group)(int pending);
  void (*cp_async_mbarrier_arrive)(uint32 mbarrier, int noinc);

  // mbarrier objects: 8 bytes of shared memory. Addresses of arrivals may be of another CTA of the
  // cluster.
  void (*mbarrier_init)(uint32 mbarrier, uint32 count);
  void (*mbarrier_invalidate)(uint32 mbarrier);
  void (*mbarrier_arrive)(uint32 mbarrier, uint32 count);
  void (*mbarrier_expect_tx)(uint32 mbarrier, uint32 bytes);
  int (*mbarrier_test_wait)(uint32 mbarrier,
                            uint32 parity);  // whether the phase of that parity is complete
  int (*mbarrier_try_wait)(uint32 mbarrier, uint32 parity);  // as test_wait, after waiting for it

  // Bulk copies.
  void (*bulk_load)(const BulkCopy* copy);
  void (*bulk_store)(const BulkCopy* copy);
  void (*bulk_commit_group)();
  void (*bulk_wait_group)(int pending, int read_only);  // read_only: the sources may be overwritten

  // wgmma of a warpgroup.
  void (*wgmma)(const Wgmma* operation);
  void (*wgmma_fence)();
  void (*wgmma_commit_group)();
  void (*wgmma_wait_group)(int pending);

  // Orders generic writes to shared memory before later accesses of the async proxy (bulk copies,
  // wgmma).
  void (*fence_proxy_async)();

  // Atomics on global or shared memory; returns the old value.
  uint64 (*atomic)(Atomic kind, Number number, void* pointer, uint64 operand);
  uint64 (*atomic_cas)(Number number, void* pointer, uint64 expected, uint64 desired);

  // Every load and store of a kernel compiled with checks, before it happens.
  void (*access)(const void* pointer, uint64 bytes, int is_write, const void* code);

  // A failed device-side assertion or __trap().
  void (*trap)(const char* what);
  uint64 (*clock)();
};

}  // namespace attune::host
