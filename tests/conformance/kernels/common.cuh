// What the kernels of the conformance suite share. Each runs one primitive on the words of `in` and
// writes all that it gives to `out`; run_case() (tests/conformance/run.h) launches them on any
// device.
#include "templates/device/ptx_hopper.cuh"

namespace attune {

struct alignas(64) TensorMapBytes {
  unsigned char bytes[128];
};

// As in tests/conformance/case.h.
struct ConformanceParams {
  TensorMapBytes map;
  const uint32* in;
  uint32* out;
  int args[12];
};
static_assert(sizeof(ConformanceParams) == 192, "host and device disagree on ConformanceParams");

constexpr uint32 kPoison = 0xa5a5a5a5u;  // in shared memory that a kernel does not write

__device__ __forceinline__ void fill_smem(uint32* words, int count, uint32 value = kPoison) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    words[i] = value;
  }
}

__device__ __forceinline__ void copy_words(uint32* to, const uint32* from, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    to[i] = from[i];
  }
}

}  // namespace attune

#define ATTUNE_CONFORMANCE_KERNEL(name, threads)                                \
  extern "C" __global__ void __launch_bounds__(threads)                         \
      conformance_##name(const __grid_constant__ attune::ConformanceParams p) { \
    attune::name(p);                                                            \
  }
