// wgmma.mma_async, one warpgroup a CTA. Shared memory is given as it lies there, so the descriptors
// are part of the input: args 0 words of the image, 1 and 2 offsets of A and B in bytes, 3 and 4
// leading and stride offset of A, 5 and 6 of B, 7 and 8 swizzles, 9 k steps, 10 and 11 bytes from
// step to step of A and B. in [CTAs, image | 128 threads x (N / 2 accumulators | steps x 4
// registers of A)], out [CTAs, 128, N / 2].
#ifdef ATTUNE_ARCH_SM90A

namespace attune {

__device__ __forceinline__ uint64 descriptor(uint32 smem, int leading, int stride, int swizzle) {
  return static_cast<uint64>((smem & 0x3ffff) >> 4) | static_cast<uint64>(leading >> 4) << 16 |
         static_cast<uint64>(stride >> 4) << 32 | static_cast<uint64>(swizzle) << 62;
}

template <int kN, bool kRegisters, int kScaleD, int kTransA, int kTransB>
__device__ __forceinline__ void wgmma(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  constexpr int kCount = kN / 2;
  const int steps = p.args[9];
  const int words_per_thread = kCount + (kRegisters ? 4 * steps : 0);
  const uint32* const image = p.in + blockIdx.x * (p.args[0] + 128 * words_per_thread);
  const uint32* const mine = image + p.args[0] + static_cast<int>(threadIdx.x) * words_per_thread;
  copy_words(reinterpret_cast<uint32*>(smem), image, p.args[0]);
  fence_proxy_async();
  __syncthreads();
  float d[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) d[i] = __uint_as_float(mine[i]);
  const uint32 base = smem_address(smem);
  for (int step = 0; step < steps; ++step) {
    const uint64 b = descriptor(base + static_cast<uint32>(p.args[2] + step * p.args[11]),
                                p.args[5], p.args[6], p.args[8]);
    if constexpr (kRegisters) {
      uint32 a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = mine[kCount + 4 * step + i];
      opaque(d);
      wgmma_fence();
      wgmma_mma_async<kScaleD, kTransB>(d, a, b);
    } else {
      const uint64 a = descriptor(base + static_cast<uint32>(p.args[1] + step * p.args[10]),
                                  p.args[3], p.args[4], p.args[7]);
      opaque(d);
      wgmma_fence();
      wgmma_mma_async<kScaleD, kTransA, kTransB>(d, a, b);
    }
    wgmma_commit_group();
    wgmma_wait_group<0>();
    opaque(d);
  }
  uint32* const out = p.out + (blockIdx.x * 128 + threadIdx.x) * kCount;
#pragma unroll
  for (int i = 0; i < kCount; ++i) out[i] = __float_as_uint(d[i]);
}

}  // namespace attune

#define ATTUNE_WGMMA_KERNEL(name, ...)                                                \
  extern "C" __global__ void __launch_bounds__(128)                                   \
      conformance_wgmma_##name(const __grid_constant__ attune::ConformanceParams p) { \
    attune::wgmma<__VA_ARGS__>(p);                                                    \
  }
#define ATTUNE_WGMMA_KERNELS(n)                      \
  ATTUNE_WGMMA_KERNEL(n##n_ss_kk, n, false, 1, 0, 0) \
  ATTUNE_WGMMA_KERNEL(n##n_ss_mk, n, false, 1, 1, 0) \
  ATTUNE_WGMMA_KERNEL(n##n_ss_kn, n, false, 1, 0, 1) \
  ATTUNE_WGMMA_KERNEL(n##n_ss_mn, n, false, 1, 1, 1) \
  ATTUNE_WGMMA_KERNEL(n##n_rs_kk, n, true, 1, 0, 0)  \
  ATTUNE_WGMMA_KERNEL(n##n_rs_kn, n, true, 1, 0, 1)
ATTUNE_WGMMA_KERNELS(8)
ATTUNE_WGMMA_KERNELS(16)
ATTUNE_WGMMA_KERNELS(32)
ATTUNE_WGMMA_KERNELS(64)
ATTUNE_WGMMA_KERNELS(128)
ATTUNE_WGMMA_KERNELS(256)
ATTUNE_WGMMA_KERNEL(32n_ss_kk_clear, 32, false, 0, 0, 0)
ATTUNE_WGMMA_KERNEL(32n_rs_kk_clear, 32, true, 0, 0, 0)

#endif  // ATTUNE_ARCH_SM90A
