// CUDA C++ for the system's C++ compiler: what the templates use of the language and its built-ins,
// so that the same source runs on the host device. Stands in front of every unit that is compiled
// for it.
#pragma once

#include "templates/host/abi.h"

// The table of the device that loaded this module.
extern "C" __attribute__((visibility("default"))) const attune::host::Abi* attune_host_abi;

#define __global__ __attribute__((visibility("hidden")))
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
// A CTA runs on one OS thread, so thread-local is what its threads share. Dynamic shared memory is
// the array attune::smem; every template declares it by that name.
#define __shared__ thread_local

namespace attune {
alignas(host::kSmemAlignment) thread_local unsigned char smem[host::kMaxSmemBytes];
}  // namespace attune
// Its dynamic initialization, of which there is none: a compiler that takes the templates' own
// declarations of it for another unit's calls this before every use.
extern "C" __attribute__((used)) void _ZTHN6attune4smemE() {}

#define threadIdx (attune_host_abi->place()->thread_idx)
#define blockIdx (attune_host_abi->place()->block_idx)
#define blockDim (attune_host_abi->place()->block_dim)
#define gridDim (attune_host_abi->place()->grid_dim)

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline int min(int a, int b) { return b < a ? b : a; }
inline int max(int a, int b) { return a < b ? b : a; }
inline unsigned min(unsigned a, unsigned b) { return b < a ? b : a; }
inline unsigned max(unsigned a, unsigned b) { return a < b ? b : a; }
inline long long min(long long a, long long b) { return b < a ? b : a; }
inline long long max(long long a, long long b) { return a < b ? b : a; }
// The number, where one operand is NaN; +0 is above -0 (PTX: max.f32, min.f32).
inline float fmaxf(float a, float b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return __builtin_signbitf(a) ? b : a;
  return a < b ? b : a;
}
inline float fminf(float a, float b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return __builtin_signbitf(a) ? a : b;
  return b < a ? b : a;
}
inline float fabsf(float x) { return __builtin_fabsf(x); }
inline float sqrtf(float x) { return __builtin_sqrtf(x); }
inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
// Rounded to nearest, and never contracted with what is around them.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }

inline float __int_as_float(int bits) { return __builtin_bit_cast(float, bits); }
inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits)); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }

inline void __syncthreads() { attune_host_abi->barrier_sync(0, 0); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { attune_host_abi->sync_warp(mask); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() {}
inline unsigned long long clock64() { return attune_host_abi->clock(); }
[[noreturn]] inline void __trap() {
  attune_host_abi->trap("__trap()");
  __builtin_unreachable();
}
inline unsigned long __cvta_generic_to_shared(const void* pointer) {
  return attune_host_abi->smem_address(pointer);
}

inline int __all_sync(unsigned mask, int predicate) {
  return static_cast<int>(attune_host_abi->vote(mask, attune::host::Vote::kAll, predicate));
}
inline int __any_sync(unsigned mask, int predicate) {
  return static_cast<int>(attune_host_abi->vote(mask, attune::host::Vote::kAny, predicate));
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return attune_host_abi->vote(mask, attune::host::Vote::kBallot, predicate);
}

namespace attune::host {

// A value of 4 or 8 bytes as the bits that the table takes.
template <typename T>
inline uint64 bits_of(T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (sizeof(T) == 4) {
    return __builtin_bit_cast(uint32, value);
  } else {
    return __builtin_bit_cast(uint64, value);
  }
}
template <typename T>
inline T value_of(uint64 bits) {
  if constexpr (sizeof(T) == 4) {
    return __builtin_bit_cast(T, static_cast<uint32>(bits));
  } else {
    return __builtin_bit_cast(T, bits);
  }
}
template <typename T>
inline T shuffle(unsigned mask, Shuffle kind, T value, int lane_or_delta, int width) {
  return value_of<T>(attune_host_abi->shuffle(mask, kind, bits_of(value), lane_or_delta, width));
}

constexpr Number number_of(int) { return Number::kInt32; }
constexpr Number number_of(unsigned) { return Number::kUint32; }
constexpr Number number_of(unsigned long long) { return Number::kUint64; }
constexpr Number number_of(float) { return Number::kFloat; }
template <typename T>
inline T atomic(Atomic kind, T* pointer, T operand) {
  return value_of<T>(attune_host_abi->atomic(kind, number_of(T()), pointer, bits_of(operand)));
}

template <typename Params>
inline void call(void (*kernel)(Params), const void* params) {
  kernel(*static_cast<const Params*>(params));
}
template <typename Params>
constexpr unsigned long size_of_params(void (*)(Params)) {
  return sizeof(Params);
}

}  // namespace attune::host

template <typename T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  return attune::host::shuffle(mask, attune::host::Shuffle::kIndex, value, lane, width);
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return attune::host::shuffle(mask, attune::host::Shuffle::kUp, value, static_cast<int>(delta),
                               width);
}
template <typename T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return attune::host::shuffle(mask, attune::host::Shuffle::kDown, value, static_cast<int>(delta),
                               width);
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  return attune::host::shuffle(mask, attune::host::Shuffle::kXor, value, lane_mask, width);
}

template <typename T>
inline T atomicAdd(T* pointer, T operand) {
  return attune::host::atomic(attune::host::Atomic::kAdd, pointer, operand);
}
template <typename T>
inline T atomicMin(T* pointer, T operand) {
  return attune::host::atomic(attune::host::Atomic::kMin, pointer, operand);
}
template <typename T>
inline T atomicMax(T* pointer, T operand) {
  return attune::host::atomic(attune::host::Atomic::kMax, pointer, operand);
}
template <typename T>
inline T atomicExch(T* pointer, T operand) {
  return attune::host::atomic(attune::host::Atomic::kExchange, pointer, operand);
}
template <typename T>
inline T atomicAnd(T* pointer, T operand) {
  return attune::host::atomic(attune::host::Atomic::kAnd, pointer, operand);
}
template <typename T>
inline T atomicOr(T* pointer, T operand) {
  return attune::host::atomic(attune::host::Atomic::kOr, pointer, operand);
}
template <typename T>
inline T atomicXor(T* pointer, T operand) {
  return attune::host::atomic(attune::host::Atomic::kXor, pointer, operand);
}
template <typename T>
inline T atomicCAS(T* pointer, T expected, T desired) {
  using namespace attune::host;
  return value_of<T>(
      attune_host_abi->atomic_cas(number_of(T()), pointer, bits_of(expected), bits_of(desired)));
}

// Behind a unit: what the device looks for in the module, and once for each kernel its entry.
#define ATTUNE_HOST_EXPORT extern "C" __attribute__((visibility("default"), used))
#define ATTUNE_HOST_MODULE                                       \
  ATTUNE_HOST_EXPORT const attune::host::Abi* attune_host_abi;   \
  const attune::host::Abi* attune_host_abi = nullptr;            \
  ATTUNE_HOST_EXPORT const int attune_host_abi_version;          \
  const int attune_host_abi_version = attune::host::kAbiVersion; \
  ATTUNE_HOST_EXPORT unsigned char* attune_host_smem() { return attune::smem; }
#define ATTUNE_HOST_ENTRY(symbol)                                     \
  ATTUNE_HOST_EXPORT void attune_entry_##symbol(const void* params) { \
    attune::host::call(&symbol, params);                              \
  }                                                                   \
  ATTUNE_HOST_EXPORT const unsigned long attune_params_##symbol;      \
  const unsigned long attune_params_##symbol = attune::host::size_of_params(&symbol);

#ifdef __SANITIZE_THREAD__
#include "templates/host/access_hooks.h"
#endif
