// One warpgroup writes a buffer, the other reads it and gives it back: P and its row factors in
// wgmma.cuh. The reader takes words, or multiplies the buffer by wgmma.
#include "tests/sanitizer/case.h"

namespace attune {
namespace {

constexpr int kGroup = 128;
constexpr int kTiles = 5;
constexpr int kPanelWords = 64 * 128 / 4;  // 64 rows of 64 bf16 numbers
constexpr int kOnesWords = 8 * 128 / 4;    // 8 columns of them
constexpr unsigned kOnes = 0x3f803f80;     // two bf16 numbers

// Two bf16 numbers of tile + 1.
__host__ __device__ constexpr unsigned number_pair(int tile) {
  constexpr unsigned kNumbers[kTiles] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0};
  return kNumbers[tile] << 16 | kNumbers[tile];
}

template <Arrive kHow, bool kProducts>
__global__ void __launch_bounds__(2 * kGroup) handoff(unsigned* out) {
#ifdef __CUDA_ARCH__
  __shared__ alignas(1024) unsigned panel[kPanelWords];
  __shared__ alignas(1024) unsigned ones[kOnesWords];
  __shared__ unsigned factors[kGroup];
  __shared__ uint64 ready;
  __shared__ uint64 done;
  if (threadIdx.x == 0) {
    mbarrier_init(smem_address(&ready), kGroup / 32 * arrivals_per_warp(kHow));
    mbarrier_init(smem_address(&done), kGroup / 32 * arrivals_per_warp(kHow));
    fence_mbarrier_init();
  }
  for (int i = threadIdx.x; i < kOnesWords; i += 2 * kGroup) ones[i] = kOnes;
  fence_proxy_async();
  __syncthreads();
  const int thread = threadIdx.x % kGroup;
  const int lane = thread % 32;
  if (threadIdx.x < kGroup) {
    for (int tile = 0; tile < kTiles; ++tile) {
      wait<kHow>(smem_address(&done), tile & 1 ^ 1);
      const unsigned pair = number_pair(tile);
      if constexpr (kProducts) {
        const uint32 fragment[4] = {pair, pair, pair, pair};
        for (int k = 0; k < 4; ++k) {
          stmatrix_x4(smem_address(panel) + panel_offset(thread / 32 * 16 + a_fragment_row(lane),
                                                         2 * k + a_fragment_chunk(lane)),
                      fragment);
        }
      } else {
        for (int i = thread; i < kPanelWords; i += kGroup) panel[i] = pair + i;
      }
      factors[thread] = thread + tile;
      fence_proxy_async();
      arrive<kHow>(smem_address(&ready));
    }
    return;
  }
  unsigned sum = 0;
  for (int tile = 0; tile < kTiles; ++tile) {
    wait<kHow>(smem_address(&ready), tile & 1);
    sum += factors[thread ^ 33];
    if constexpr (kProducts) {
      float d[4];
      uint64 a = row_descriptor(smem_address(panel));
      uint64 b = row_descriptor(smem_address(ones));
      opaque(a);
      opaque(b);
      opaque(d);
      wgmma_fence();
      wgmma_mma_async<0>(d, a, b);
      for (int k = 1; k < 4; ++k) {
        wgmma_mma_async<1>(d, a + (k * kStepBytes >> 4), b + (k * kStepBytes >> 4));
      }
      wgmma_commit_group();
      wgmma_wait_group<0>();
      opaque(d);
      sum += static_cast<unsigned>(d[0] + d[1] + d[2] + d[3]);
    } else {
      for (int i = thread; i < kPanelWords; i += kGroup) sum += panel[i ^ 33];
    }
    arrive<kHow>(smem_address(&done));
  }
  out[thread] = sum;
#endif
}

template <Arrive kHow, bool kProducts>
void launch(const unsigned*, unsigned* out) {
  handoff<kHow, kProducts><<<1, 2 * kGroup>>>(out);
}

template <bool kProducts>
std::vector<unsigned> expected(const std::vector<unsigned>&) {
  std::vector<unsigned> out(kGroup);
  for (int thread = 0; thread < kGroup; ++thread) {
    for (int tile = 0; tile < kTiles; ++tile) {
      out[thread] += (thread ^ 33) + tile;
      if (kProducts) {
        out[thread] += 4 * 64 * (tile + 1);
      } else {
        for (int i = thread; i < kPanelWords; i += kGroup)
          out[thread] += number_pair(tile) + (i ^ 33);
      }
    }
  }
  return out;
}

}  // namespace
}  // namespace attune

int main(int argc, char** argv) {
  using namespace attune;
  return run_case(argc, argv,
                  {{"words-lane0", launch<Arrive::kLane0, false>, expected<false>},
                   {"words-all-lanes", launch<Arrive::kAllLanes, false>, expected<false>},
                   {"words-planted", launch<Arrive::kNobody, false>, expected<false>, true},
                   {"wgmma-lane0", launch<Arrive::kLane0, true>, expected<true>},
                   {"wgmma-all-lanes", launch<Arrive::kAllLanes, true>, expected<true>},
                   {"wgmma-planted", launch<Arrive::kNobody, true>, expected<true>, true}},
                  1);
}
