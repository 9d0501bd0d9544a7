// What the programs of this folder share. Each is a few kernels with one way to synchronize each,
// written with the templates' own instructions, and checks its own result: what compute-sanitizer
// says of them is about the tool (docs/sanitizers.md).
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

// The instructions exist in the device pass alone.
#ifdef __CUDA_ARCH__
#define ATTUNE_ARCH_SM90A 1
#include "templates/device/mma.cuh"
#include "templates/device/ptx.cuh"
#include "templates/device/ptx_hopper.cuh"
#include "templates/device/wgmma_tile.cuh"
#endif

namespace attune {

// Which threads of a warp arrive at an mbarrier for it.
enum class Arrive {
  kLane0,     // one, after __syncwarp: warp_arrive() of the templates
  kAllLanes,  // every lane for itself
  kNobody,    // a planted race: nobody waits either
};
// Who executes fence.proxy.async between the reads of a slot and the copy that fills it again.
enum class Fence {
  kNobody,
  kReaders,  // every reader, before it gives the slot back
  kCopier,   // the thread that starts the copy, when it has the slot
};
constexpr unsigned arrivals_per_warp(Arrive how) { return how == Arrive::kAllLanes ? 32 : 1; }

#ifdef __CUDA_ARCH__
template <Arrive kHow>
__device__ __forceinline__ void arrive(uint32 mbarrier) {
  if constexpr (kHow == Arrive::kLane0) warp_arrive(mbarrier, threadIdx.x % kWarpSize);
  if constexpr (kHow == Arrive::kAllLanes) mbarrier_arrive(mbarrier);
}
template <Arrive kHow>
__device__ __forceinline__ void wait(uint32 mbarrier, uint32 parity) {
  if constexpr (kHow != Arrive::kNobody) mbarrier_wait_parity(mbarrier, parity);
}
#endif

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(3);
}

// A kernel that fills `out` from `in`, and what it has to write. A planted race has no result.
struct Case {
  std::string_view name;
  void (*launch)(const unsigned* in, unsigned* out);
  std::vector<unsigned> (*expected)(const std::vector<unsigned>& in);
  bool planted = false;
};

// Runs the case that the only argument names; without one prints the names. Exit codes: 0 right,
// 1 wrong, 2 usage, 3 CUDA.
inline int run_case(int argc, char** argv, const std::vector<Case>& cases, int num_in) {
  if (argc != 2) {
    for (const Case& one : cases) std::printf("%s\n", one.name.data());
    return argc == 1 ? 0 : 2;
  }
  std::vector<unsigned> in(num_in);
  for (int i = 0; i < num_in; ++i) in[i] = 1 + i % 7;
  for (const Case& one : cases) {
    if (one.name != argv[1]) continue;
    const std::vector<unsigned> expected = one.expected(in);
    unsigned* device_in;
    unsigned* device_out;
    check(cudaMalloc(&device_in, in.size() * 4), "cudaMalloc");
    check(cudaMalloc(&device_out, expected.size() * 4), "cudaMalloc");
    check(cudaMemcpy(device_in, in.data(), in.size() * 4, cudaMemcpyDefault), "cudaMemcpy");
    check(cudaMemset(device_out, 0, expected.size() * 4), "cudaMemset");
    one.launch(device_in, device_out);
    check(cudaGetLastError(), "launch");
    std::vector<unsigned> out(expected.size());
    check(cudaMemcpy(out.data(), device_out, out.size() * 4, cudaMemcpyDefault), "kernel");
    check(cudaFree(device_in), "cudaFree");
    check(cudaFree(device_out), "cudaFree");
    const bool right = one.planted || out == expected;
    std::printf("%s: %s\n", argv[1], one.planted ? "planted" : right ? "right" : "wrong");
    return right ? 0 : 1;
  }
  std::fprintf(stderr, "no such case: %s\n", argv[1]);
  return 2;
}

}  // namespace attune
