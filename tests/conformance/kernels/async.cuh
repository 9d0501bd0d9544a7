// cp.async, mbarrier, bulk copies of rows.
namespace attune {

// 128 threads. in [512 words | 128 x (source chunk, target chunk, bytes)], out [512].
__device__ __forceinline__ void cp_async(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  uint32* const words = reinterpret_cast<uint32*>(smem);
  fill_smem(words, 512);
  __syncthreads();
  const uint32* const mine = p.in + 512 + 3 * threadIdx.x;
  cp_async_16(smem_address(smem) + 16 * mine[1], p.in + 4 * mine[0], mine[2]);
  cp_async_commit_group();
  cp_async_wait_group<0>();
  __syncthreads();
  copy_words(p.out, words, 512);
}

// 128 threads, three groups each; a thread reads its own chunks after each wait.
// in [3, 128, 4], out [3, 128, 4].
__device__ __forceinline__ void cp_async_groups(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32 mine = 4 * threadIdx.x;
  volatile uint32* const words = reinterpret_cast<uint32*>(smem) + mine;
#pragma unroll
  for (int group = 0; group < 3; ++group) {
    cp_async_16(smem_address(smem) + 4 * (group * 512 + mine), p.in + group * 512 + mine, 16);
    cp_async_commit_group();
  }
  cp_async_wait_group<2>();
  for (int i = 0; i < 4; ++i) p.out[mine + i] = words[i];
  cp_async_wait_group<1>();
  for (int i = 0; i < 4; ++i) p.out[512 + mine + i] = words[512 + i];
  cp_async_wait_group<0>();
  for (int i = 0; i < 4; ++i) p.out[1024 + mine + i] = words[1024 + i];
}

// One element of 16 bytes a thread. in and out [threads, 4].
__device__ __forceinline__ void load_cg(const ConformanceParams& p) {
  const uint32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  uint32 value[4];
  ld_global_cg_v4(value, p.in + 4 * thread);
#pragma unroll
  for (int i = 0; i < 4; ++i) p.out[4 * thread + i] = value[i];
}

#ifdef ATTUNE_CONFORMANCE_SM90

// Steps of a script for one barrier; as in tests/conformance/async_cases.cpp.
enum ScriptStep : uint32 {
  kInit,            // count
  kArrive,          // count
  kExpectTx,        // bytes
  kArriveExpectTx,  // bytes
  kCopy,            // bytes
  kWait,            // parity
  kTryWait,         // parity, of a phase that is complete
  kInval,
};

// One thread runs args[0] steps. Behind each: test_wait of parity 0, of parity 1, and what a
// kTryWait gave; nothing where a copy has just been issued. Copies of one phase go to places of
// their own. in [steps, step | operand | record], out [steps].
__device__ __forceinline__ void mbarrier_script(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  if (threadIdx.x != 0) return;
  constexpr uint32 kTargetBytes = 7168;  // behind the first 1024
  const uint32 barrier = smem_address(smem);
  uint32 target = 0;
  for (int i = 0; i < p.args[0]; ++i) {
    const uint32 operand = p.in[3 * i + 1];
    uint32 tried = 0;
    switch (p.in[3 * i]) {
      case kInit:
        mbarrier_init(barrier, operand);
        fence_mbarrier_init();
        break;
      case kArrive:
        mbarrier_arrive(barrier, operand);
        break;
      case kExpectTx:
        mbarrier_expect_tx(barrier, operand);
        break;
      case kArriveExpectTx:
        mbarrier_arrive_expect_tx(barrier, operand);
        break;
      case kCopy:
        if (target + operand > kTargetBytes) target = 0;
        cp_async_bulk_load(barrier + 1024 + target, p.in, operand, barrier);
        target += operand;
        break;
      case kWait:
        mbarrier_wait_parity(barrier, operand);
        break;
      case kTryWait:
        tried = mbarrier_try_wait_parity(barrier, operand) ? 4u : 0u;
        break;
      default:
        mbarrier_inval(barrier);
    }
    if (p.in[3 * i + 2] == 0) continue;
    const uint32 even = mbarrier_test_wait_parity(barrier, 0) ? 1u : 0u;
    const uint32 odd = mbarrier_test_wait_parity(barrier, 1) ? 2u : 0u;
    p.out[i] = tried | odd | even;
  }
}

// Two warps hand args[0] values over through a ring of four slots, every lane one word.
// in and out [rounds, 32].
__device__ __forceinline__ void mbarrier_ring(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  constexpr int kSlots = 4;
  const uint32 full = smem_address(smem);
  const uint32 empty = full + 8 * kSlots;
  volatile uint32* const slots = reinterpret_cast<uint32*>(smem) + 64;
  const uint32 lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2 * kSlots; ++i) mbarrier_init(full + 8 * i, 32);
    fence_mbarrier_init();
  }
  __syncthreads();
  for (int round = 0; round < p.args[0]; ++round) {
    const int slot = round % kSlots;
    const uint32 parity = static_cast<uint32>(round / kSlots % 2);
    if (threadIdx.x < 32) {
      mbarrier_wait_parity(empty + 8 * slot, parity ^ 1);
      slots[slot * 32 + lane] = p.in[round * 32 + lane];
      mbarrier_arrive(full + 8 * slot);
    } else {
      mbarrier_wait_parity(full + 8 * slot, parity);
      p.out[round * 32 + lane] = slots[slot * 32 + (lane * 11 + round) % 32];
      mbarrier_arrive(empty + 8 * slot);
    }
  }
}

// 64 threads; arrivals by cp.async, counted by the barrier (args[0] 1) or on top of it.
// in and out [64, 4].
__device__ __forceinline__ void cp_async_mbarrier(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32 barrier = smem_address(smem);
  volatile uint32* const words = reinterpret_cast<uint32*>(smem) + 256;
  const bool noinc = p.args[0] != 0;
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, noinc ? 64 : 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  cp_async_16(barrier + 1024 + 16 * threadIdx.x, p.in + 4 * threadIdx.x, 16);
  if (noinc) {
    cp_async_mbarrier_arrive_noinc(barrier);
  } else {
    cp_async_mbarrier_arrive(barrier);
    __syncthreads();
    if (threadIdx.x == 0) mbarrier_arrive(barrier);
  }
  mbarrier_wait_parity(barrier, 0);
  const uint32 other = 63 - threadIdx.x;
  for (int i = 0; i < 4; ++i) p.out[4 * threadIdx.x + i] = words[4 * other + i];
}

// 64 threads; args[0] copies, one a phase. in [copies, source | target | bytes, 4 words each ||
// data], source and target in words, out [args[1] words of shared memory].
__device__ __forceinline__ void bulk_load(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32 barrier = smem_address(smem);
  uint32* const words = reinterpret_cast<uint32*>(smem) + 256;
  fill_smem(words, p.args[1]);
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
  }
  fence_proxy_async();
  __syncthreads();
  for (int i = 0; i < p.args[0]; ++i) {
    const uint32* const copy = p.in + 4 * i;
    if (threadIdx.x == 0) {
      mbarrier_arrive_expect_tx(barrier, copy[2]);
      cp_async_bulk_load(barrier + 1024 + 4 * copy[1], p.in + copy[0], copy[2], barrier);
    }
    mbarrier_wait_parity(barrier, static_cast<uint32>(i % 2));
    __syncthreads();  // or thread 0 could be two phases ahead of the others' wait
  }
  copy_words(p.out, words, p.args[1]);
}

// 64 threads; args[0] copies, a group each. in as bulk_load, data from word args[1] on, args[2] of
// them; out is the target.
__device__ __forceinline__ void bulk_store(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  copy_words(reinterpret_cast<uint32*>(smem), p.in + p.args[1], p.args[2]);
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 0; i < p.args[0]; ++i) {
    const uint32* const copy = p.in + 4 * i;
    cp_async_bulk_store(p.out + copy[1], smem_address(smem) + 4 * copy[0], copy[2]);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read<1>();
  }
  cp_async_bulk_wait_group<0>();
}

#endif  // ATTUNE_CONFORMANCE_SM90

}  // namespace attune

ATTUNE_CONFORMANCE_KERNEL(cp_async, 128)
ATTUNE_CONFORMANCE_KERNEL(cp_async_groups, 128)
ATTUNE_CONFORMANCE_KERNEL(load_cg, 128)
#ifdef ATTUNE_CONFORMANCE_SM90
ATTUNE_CONFORMANCE_KERNEL(mbarrier_script, 32)
ATTUNE_CONFORMANCE_KERNEL(mbarrier_ring, 64)
ATTUNE_CONFORMANCE_KERNEL(cp_async_mbarrier, 64)
ATTUNE_CONFORMANCE_KERNEL(bulk_load, 64)
ATTUNE_CONFORMANCE_KERNEL(bulk_store, 64)
#endif
