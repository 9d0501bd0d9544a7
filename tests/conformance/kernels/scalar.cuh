// Scalar arithmetic, one element a thread; args[0] is the number of elements.
namespace attune {

__device__ __forceinline__ int element_of(const ConformanceParams& p) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  return i < p.args[0] ? i : -1;
}

// in [n, low | high], out [n].
__device__ __forceinline__ void cvt(const ConformanceParams& p) {
  const int i = element_of(p);
  if (i < 0) return;
  p.out[i] = cvt_bf16x2(__uint_as_float(p.in[2 * i]), __uint_as_float(p.in[2 * i + 1]));
}

// in and out [n].
__device__ __forceinline__ void exp2_approximate(const ConformanceParams& p) {
  const int i = element_of(p);
  if (i >= 0) p.out[i] = __float_as_uint(ex2(__uint_as_float(p.in[i])));
}
__device__ __forceinline__ void log2_approximate(const ConformanceParams& p) {
  const int i = element_of(p);
  if (i >= 0) p.out[i] = __float_as_uint(lg2(__uint_as_float(p.in[i])));
}
__device__ __forceinline__ void reciprocal_approximate(const ConformanceParams& p) {
  const int i = element_of(p);
  if (i >= 0) p.out[i] = __float_as_uint(rcp(__uint_as_float(p.in[i])));
}

// in [n, a | b | c], out [n, 11].
__device__ __forceinline__ void float_arithmetic(const ConformanceParams& p) {
  const int i = element_of(p);
  if (i < 0) return;
  const float a = __uint_as_float(p.in[3 * i]);
  const float b = __uint_as_float(p.in[3 * i + 1]);
  const float c = __uint_as_float(p.in[3 * i + 2]);
  uint32* const out = p.out + 11 * i;
  out[0] = __float_as_uint(a + b);
  out[1] = __float_as_uint(a - b);
  out[2] = __float_as_uint(a * b);
  // No a * b + c: the device compiler makes one fma of it, the host's does not.
  out[3] = __float_as_uint(fmaf(-a, b, c));
  out[4] = __float_as_uint(fmaf(a, b, c));
  out[5] = __float_as_uint(fmaxf(a, b));
  out[6] = __float_as_uint(fminf(a, b));
  out[7] = __float_as_uint(fabsf(a));
  out[8] = __float_as_uint(a / b);
  out[10] = __float_as_uint(max_nan(a, b));
  out[9] = (a < b ? 1u : 0u) | (a <= b ? 2u : 0u) | (a == b ? 4u : 0u) | (a != b ? 8u : 0u);
}

// in [n, a | b], out [n, 13].
__device__ __forceinline__ void integer_arithmetic(const ConformanceParams& p) {
  const int i = element_of(p);
  if (i < 0) return;
  const uint32 a = p.in[2 * i];
  const uint32 b = p.in[2 * i + 1];
  const int signed_a = static_cast<int>(a);
  const int signed_b = static_cast<int>(b);
  uint32* const out = p.out + 13 * i;
  out[0] = static_cast<uint32>(max(signed_a, signed_b));
  out[1] = static_cast<uint32>(min(signed_a, signed_b));
  out[2] = max(a, b);
  out[3] = min(a, b);
  out[4] = __float_as_uint(__int_as_float(signed_a));
  out[5] = static_cast<uint32>(__float_as_int(__uint_as_float(a)));
  out[6] = static_cast<uint32>(__popc(a));
  out[7] = static_cast<uint32>(__clz(signed_a));
  out[8] = static_cast<uint32>(__ffs(signed_a));
  out[9] = __float_as_uint(static_cast<float>(signed_a));
  out[10] = __float_as_uint(static_cast<float>(a));
  out[11] = static_cast<uint32>(static_cast<uint64>(a) * b >> 32);
  out[12] = and_or(a, b, a >> 16 | b << 16);
}

}  // namespace attune

ATTUNE_CONFORMANCE_KERNEL(cvt, 128)
ATTUNE_CONFORMANCE_KERNEL(exp2_approximate, 128)
ATTUNE_CONFORMANCE_KERNEL(log2_approximate, 128)
ATTUNE_CONFORMANCE_KERNEL(reciprocal_approximate, 128)
ATTUNE_CONFORMANCE_KERNEL(float_arithmetic, 128)
ATTUNE_CONFORMANCE_KERNEL(integer_arithmetic, 128)
