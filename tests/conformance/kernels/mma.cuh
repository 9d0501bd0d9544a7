// mma.m16n8k16, one tile a warp: in [tiles, 32 lanes, a 4 | b 2 | c 4], out [tiles, 32 lanes, 4].
namespace attune {

__device__ __forceinline__ void mma(const ConformanceParams& p) {
  const uint32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32* const in = p.in + thread * 10;
  uint32 a[4];
  float d[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    a[i] = in[i];
    d[i] = __uint_as_float(in[6 + i]);
  }
  mma_m16n8k16(d, a, in[4], in[5]);
#pragma unroll
  for (int i = 0; i < 4; ++i) p.out[thread * 4 + i] = __float_as_uint(d[i]);
}

}  // namespace attune

ATTUNE_CONFORMANCE_KERNEL(mma, 128)
