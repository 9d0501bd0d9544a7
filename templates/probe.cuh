// Measuring kernels: reproducible noise for benchmark buffers, and what the device can do at most.
// fill_noise    bf16 values, roughly normal with deviation 1, from a hash of (seed, index).
//               Grid-stride, 256 threads.
// probe_read    reads num_bytes once, four 16-byte loads in flight per thread. Grid-stride,
//               512 threads.
// probe_tensor  dense bf16 products back to back from shared memory (wgmma) or registers
//               (mma.sync), 256 threads; probe_tensor_flops_per_iteration() counts its work.
// copy_late     copies num_bytes after a while, in which the next kernel may start already: what reads too
//               early sees what was there before. One CTA of 256 threads.
#pragma once

#include "templates/config.h"
#include "templates/device/ptx_hopper.cuh"
#include "templates/params.h"
#include "templates/probe_params.h"

namespace attune {

// A 32-bit finalizer with full avalanche. Source: Wellons, "Prospecting for hash functions", 2018
// (public domain).
__device__ __forceinline__ uint32 hash32(uint32 x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

// The sum of four uniform bytes has deviation 147.8 around 510: close to normal, no table and no
// function call.
__device__ __forceinline__ float noise(uint32 x) {
  const float sum = static_cast<float>((x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24));
  return (sum - 510.0f) * (1.0f / 147.8f);
}

__device__ __forceinline__ void fill_noise(const FillParams& p) {
  uint4* const out = static_cast<uint4*>(p.out);
  const uint64 count = p.num_bytes / sizeof(uint4);
  const uint64 step = static_cast<uint64>(gridDim.x) * blockDim.x;
  for (uint64 at = blockIdx.x * static_cast<uint64>(blockDim.x) + threadIdx.x; at < count;
       at += step) {
    const uint32 seed = hash32(static_cast<uint32>(at) ^ static_cast<uint32>(p.seed)) ^
                        hash32(static_cast<uint32>(at >> 32) + static_cast<uint32>(p.seed >> 32));
    uint32 words[4];
#pragma unroll
    for (uint32 i = 0; i < 4; ++i) {
      words[i] = cvt_bf16x2(noise(hash32(seed + 2 * i)), noise(hash32(seed + 2 * i + 1)));
    }
    out[at] = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

__device__ __forceinline__ void probe_read(const ProbeParams& p) {
  constexpr int kLoads = 4;
  const unsigned char* const data = static_cast<const unsigned char*>(p.data);
  const uint64 count = p.num_bytes / sizeof(uint4);
  const uint64 step = static_cast<uint64>(gridDim.x) * blockDim.x;
  const uint64 start = blockIdx.x * static_cast<uint64>(blockDim.x) + threadIdx.x;
  uint32 folded = 0;
  for (uint64 at = start; at < count; at += kLoads * step) {
    uint32 value[kLoads][4] = {};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (at + i * step < count) ld_global_cg_v4(value[i], data + (at + i * step) * sizeof(uint4));
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      folded ^= value[i][0] ^ value[i][1] ^ value[i][2] ^ value[i][3];
    }
  }
  // Practically never true; keeps the loads alive.
  if (folded == 0x9e3779b9u) *p.sink = 1.0f;
}

__device__ __forceinline__ void copy_late(const LateCopyParams& p) {
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const unsigned char* const from = static_cast<const unsigned char*>(p.from);
  const uint64 count = p.num_bytes / sizeof(uint4);
  uint32 value[4];
  // Loads that wait for each other: where the next one is depends on the last one's value.
  uint64 at = threadIdx.x % count;
  for (int i = 0; i < p.num_waits; ++i) {
    ld_global_cg_v4(value, from + at * sizeof(uint4));
    at = (at + 1 + (value[0] & 1)) % count;
  }
  for (uint64 i = threadIdx.x; i < count; i += blockDim.x) {
    ld_global_cg_v4(value, from + i * sizeof(uint4));
    static_cast<uint4*>(p.to)[i] = make_uint4(value[0], value[1], value[2], value[3]);
  }
}

#ifdef ATTUNE_ARCH_SM90A

// A K-major tile of 64-column panels with the 128-byte swizzle: start address, 1024 bytes between
// groups of 8 rows.
__device__ __forceinline__ uint64 swizzled_descriptor(uint32 smem) {
  constexpr uint64 kGroupBytes = 1024;
  constexpr uint64 kSwizzle128 = 1;
  return static_cast<uint64>((smem & 0x3ffff) >> 4) | (kGroupBytes >> 4) << 32 | kSwizzle128 << 62;
}

__device__ __forceinline__ void probe_tensor(const ProbeParams& p) {
  constexpr int kPanel = 64;  // columns of a panel: four k steps
  constexpr int kRowsA = 64;
  constexpr int kRowsB = 256;
  constexpr int kStepBytes = 32;  // one k step inside a panel
  __shared__ __align__(1024) uint16 a_tile[kRowsA * kPanel];
  __shared__ __align__(1024) uint16 b_tile[kRowsB * kPanel];
  for (int i = threadIdx.x; i < kRowsA * kPanel + kRowsB * kPanel; i += kProbeTensorThreads) {
    const uint16 value = static_cast<uint16>(cvt_bf16x2(noise(hash32(i)), 0.0f));
    if (i < kRowsA * kPanel) {
      a_tile[i] = value;
    } else {
      b_tile[i - kRowsA * kPanel] = value;
    }
  }
  fence_proxy_async();
  __syncthreads();
  const uint64 a = swizzled_descriptor(smem_address(a_tile));
  const uint64 b = swizzled_descriptor(smem_address(b_tile));
  float d[128] = {};
  for (int iteration = 0; iteration < p.iterations; ++iteration) {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kPanel / 16; ++k) {
      wgmma_mma_async(d, a + (k * kStepBytes >> 4), b + (k * kStepBytes >> 4));
    }
    wgmma_commit_group();
  }
  wgmma_wait_group<0>();
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 128; ++i) {
    opaque(d[i]);
    sum += d[i];
  }
  if (sum == 12345.678f) *p.sink = sum;
}

#else

__device__ __forceinline__ void probe_tensor(const ProbeParams& p) {
  constexpr int kAccumulators = 16;  // enough independent chains to hide the latency of mma.sync
  uint32 a[4];
  uint32 b[2];
#pragma unroll
  for (uint32 i = 0; i < 4; ++i) {
    a[i] = cvt_bf16x2(noise(hash32(threadIdx.x * 8 + i)), noise(hash32(threadIdx.x * 8 + i + 4)));
  }
  b[0] = a[1] ^ 0x00800080u;
  b[1] = a[2] ^ 0x00800080u;
  float d[kAccumulators][4] = {};
  for (int iteration = 0; iteration < p.iterations; ++iteration) {
#pragma unroll
    for (int i = 0; i < kAccumulators; ++i) mma_m16n8k16(d[i], a, b[0], b[1]);
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kAccumulators; ++i) sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];
  if (sum == 12345.678f) *p.sink = sum;
}

#endif

}  // namespace attune
