// ldmatrix, stmatrix and movmatrix in all their forms; one warp a CTA.
namespace attune {

constexpr int kMatrixWords = 256;  // 64 rows of 16 bytes

// in [CTAs, 256 words | 6 forms x 32 row indices], out [CTAs, 6 forms, 32 lanes, 4].
__device__ __forceinline__ void ldmatrix(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32* const in = p.in + blockIdx.x * (kMatrixWords + 6 * 32);
  uint32* const out = p.out + blockIdx.x * (6 * 32 * 4) + threadIdx.x * 4;
  copy_words(reinterpret_cast<uint32*>(smem), in, kMatrixWords);
  __syncthreads();
  uint32 address[6];
#pragma unroll
  for (int form = 0; form < 6; ++form) {
    address[form] = smem_address(smem) + 16 * in[kMatrixWords + form * 32 + threadIdx.x];
  }
  uint32 one[1];
  uint32 two[2];
  uint32 four[4];
  ldmatrix_x1(one, address[0]);
  out[0] = one[0];
  ldmatrix_x1_trans(one, address[1]);
  out[128] = one[0];
  ldmatrix_x2(two, address[2]);
  out[256] = two[0];
  out[257] = two[1];
  ldmatrix_x2_trans(two, address[3]);
  out[384] = two[0];
  out[385] = two[1];
  ldmatrix_x4(four, address[4]);
#pragma unroll
  for (int i = 0; i < 4; ++i) out[512 + i] = four[i];
  ldmatrix_x4_trans(four, address[5]);
#pragma unroll
  for (int i = 0; i < 4; ++i) out[640 + i] = four[i];
}

// in and out [CTAs, 32 lanes].
__device__ __forceinline__ void movmatrix(const ConformanceParams& p) {
  const uint32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  p.out[thread] = movmatrix_trans(p.in[thread]);
}

#ifdef ATTUNE_CONFORMANCE_SM90
template <int kForm>
__device__ __forceinline__ void stmatrix_form(const ConformanceParams& p, unsigned char* smem) {
  const uint32* const in = p.in + (blockIdx.x * 6 + kForm) * (32 * 5) + threadIdx.x * 5;
  uint32* const words = reinterpret_cast<uint32*>(smem);
  fill_smem(words, kMatrixWords);
  __syncthreads();
  const uint32 address = smem_address(smem) + 16 * in[4];
  const uint32 one[1] = {in[0]};
  const uint32 two[2] = {in[0], in[1]};
  const uint32 four[4] = {in[0], in[1], in[2], in[3]};
  if constexpr (kForm == 0) stmatrix_x1(address, one);
  if constexpr (kForm == 1) stmatrix_x1_trans(address, one);
  if constexpr (kForm == 2) stmatrix_x2(address, two);
  if constexpr (kForm == 3) stmatrix_x2_trans(address, two);
  if constexpr (kForm == 4) stmatrix_x4(address, four);
  if constexpr (kForm == 5) stmatrix_x4_trans(address, four);
  __syncthreads();
  copy_words(p.out + (blockIdx.x * 6 + kForm) * kMatrixWords, words, kMatrixWords);
  __syncthreads();
}

// in [CTAs, 6 forms, 32 lanes, registers 4 | row index], out [CTAs, 6 forms, 256 words].
__device__ __forceinline__ void stmatrix(const ConformanceParams& p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  stmatrix_form<0>(p, smem);
  stmatrix_form<1>(p, smem);
  stmatrix_form<2>(p, smem);
  stmatrix_form<3>(p, smem);
  stmatrix_form<4>(p, smem);
  stmatrix_form<5>(p, smem);
}
#endif

}  // namespace attune

ATTUNE_CONFORMANCE_KERNEL(ldmatrix, 32)
ATTUNE_CONFORMANCE_KERNEL(movmatrix, 32)
#ifdef ATTUNE_CONFORMANCE_SM90
ATTUNE_CONFORMANCE_KERNEL(stmatrix, 32)
#endif
