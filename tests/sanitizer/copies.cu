// A producer thread fills two slots by bulk copies, four warps read them and give them back: what
// wgmma.cuh does with its K and V slots, and stream_tiles.cuh where warps share a stream.
#include <cuda.h>

#include "tests/sanitizer/case.h"

namespace attune {
namespace {

constexpr int kSlots = 2;
constexpr int kTiles = 6;
constexpr int kTileWords = 1024;
constexpr int kTileBytes = kTileWords * 4;
constexpr int kBoxWords = 256;
constexpr int kReaders = 128;  // the producer is the first thread behind them
constexpr int kThreads = kReaders + 32;

template <Arrive kHow, bool kTensor, Fence kFence>
__global__ void __launch_bounds__(kThreads)
    copies(const unsigned* in, unsigned* out, const __grid_constant__ CUtensorMap map) {
#ifdef __CUDA_ARCH__
  __shared__ alignas(1024) unsigned tiles[kSlots][kTileWords];
  __shared__ uint64 full[kSlots];
  __shared__ uint64 empty[kSlots];
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < kSlots; ++slot) {
      mbarrier_init(smem_address(&full[slot]), 1);
      mbarrier_init(smem_address(&empty[slot]), kReaders / 32 * arrivals_per_warp(kHow));
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= kReaders) {
    if (threadIdx.x != kReaders) return;
    for (int tile = 0; tile < kTiles; ++tile) {
      const int slot = tile % kSlots;
      const uint32 barrier = smem_address(&full[slot]);
      wait<kHow>(smem_address(&empty[slot]), tile / kSlots & 1 ^ 1);
      // A phase takes one arrival: the planted race is with the readers alone.
      if (kHow == Arrive::kNobody && tile >= kSlots) {
        mbarrier_wait_parity(barrier, tile / kSlots & 1 ^ 1);
      }
      if constexpr (kFence == Fence::kCopier) fence_proxy_async();
      mbarrier_arrive_expect_tx(barrier, kTileBytes);
      if constexpr (kTensor) {
        const int at[2] = {0, tile * (kTileWords / kBoxWords)};
        cp_async_bulk_tensor_load<2>(smem_address(tiles[slot]), &map, at, barrier);
      } else {
        cp_async_bulk_load(smem_address(tiles[slot]), in + tile * kTileWords, kTileBytes, barrier);
      }
    }
    // Nor may the CTA end before its copies.
    for (int slot = 0; slot < kSlots; ++slot) {
      mbarrier_wait_parity(smem_address(&full[slot]), (kTiles - kSlots + slot) / kSlots & 1);
    }
    return;
  }
  unsigned sum = 0;
  for (int tile = 0; tile < kTiles; ++tile) {
    const int slot = tile % kSlots;
    // Without the producer's wait for `empty` a phase may pass unseen; the last one does not.
    if (kHow != Arrive::kNobody || tile + kSlots >= kTiles) {
      mbarrier_wait_parity(smem_address(&full[slot]), tile / kSlots & 1);
    }
    for (int i = threadIdx.x; i < kTileWords; i += kReaders) sum += tiles[slot][i] * (tile + 1);
    if constexpr (kFence == Fence::kReaders) fence_proxy_async();
    arrive<kHow>(smem_address(&empty[slot]));
  }
  out[threadIdx.x] = sum;
#endif
}

// [kTiles * 4 rows, 256 words]; a box is a tile.
CUtensorMap tensor_map(const unsigned* in) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                         &result),
        "cuTensorMapEncodeTiled");
  constexpr cuuint64_t kSizes[2] = {kBoxWords, kTiles * kTileWords / kBoxWords};
  constexpr cuuint64_t kStrides[1] = {kBoxWords * 4};
  constexpr cuuint32_t kBox[2] = {kBoxWords, kTileWords / kBoxWords};
  constexpr cuuint32_t kSteps[2] = {1, 1};
  CUtensorMap map;
  const CUresult status = reinterpret_cast<Encode>(found)(
      &map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2, const_cast<unsigned*>(in), kSizes, kStrides, kBox,
      kSteps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) std::exit(3);
  return map;
}

template <Arrive kHow, bool kTensor, Fence kFence = Fence::kNobody>
void launch(const unsigned* in, unsigned* out) {
  copies<kHow, kTensor, kFence><<<1, kThreads>>>(in, out, tensor_map(in));
}

std::vector<unsigned> expected(const std::vector<unsigned>& in) {
  std::vector<unsigned> out(kReaders);
  for (int i = 0; i < kTiles * kTileWords; ++i) out[i % kReaders] += in[i] * (i / kTileWords + 1);
  return out;
}

}  // namespace
}  // namespace attune

int main(int argc, char** argv) {
  using namespace attune;
  return run_case(
      argc, argv,
      {{"bulk-lane0", launch<Arrive::kLane0, false>, expected},
       {"bulk-all-lanes", launch<Arrive::kAllLanes, false>, expected},
       {"bulk-reader-fence", launch<Arrive::kAllLanes, false, Fence::kReaders>, expected},
       {"bulk-copier-fence", launch<Arrive::kAllLanes, false, Fence::kCopier>, expected},
       {"bulk-planted", launch<Arrive::kNobody, false>, expected, true},
       {"tensor-lane0", launch<Arrive::kLane0, true>, expected},
       {"tensor-all-lanes", launch<Arrive::kAllLanes, true>, expected},
       {"tensor-planted", launch<Arrive::kNobody, true>, expected, true}},
      kTiles * kTileWords);
}
