// Who initializes an mbarrier, and what comes before its first use: stream_tiles.cuh starts copies
// in the thread that has just initialized the barrier, before any barrier of the CTA.
#include "tests/sanitizer/case.h"

namespace attune {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kSlots = 2;
constexpr int kTileWords = 256;
constexpr int kTiles = 3 * kWarps * kSlots;

enum class Between {
  kBarrier,   // __syncthreads between mbarrier.init and arrive.expect_tx
  kNothing,   // the same thread goes on; __syncthreads before the others wait
  kSyncWarp,  // __syncwarp between them; __syncthreads before the others wait
};

// Every warp has a stream of its own: its lane 0 copies, all lanes read, lane 0 copies again.
template <Between kBetween, Fence kFence>
__global__ void __launch_bounds__(kThreads) streams(const unsigned* in, unsigned* out) {
#ifdef __CUDA_ARCH__
  __shared__ alignas(128) unsigned tiles[kWarps][kSlots][kTileWords];
  __shared__ uint64 full[kWarps][kSlots];
  constexpr int kSteps = kTiles / kWarps;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const auto start = [&](int step) {
    const uint32 barrier = smem_address(&full[warp][step % kSlots]);
    mbarrier_arrive_expect_tx(barrier, kTileWords * 4);
    cp_async_bulk_load(smem_address(tiles[warp][step % kSlots]),
                       in + (step * kWarps + warp) * kTileWords, kTileWords * 4, barrier);
  };
  if (lane == 0) {
    for (int slot = 0; slot < kSlots; ++slot) mbarrier_init(smem_address(&full[warp][slot]), 1);
    fence_mbarrier_init();
  }
  if constexpr (kBetween == Between::kBarrier) __syncthreads();
  if constexpr (kBetween == Between::kSyncWarp) __syncwarp();
  if (lane == 0) {
    for (int step = 0; step < kSlots; ++step) start(step);
  }
  if constexpr (kBetween != Between::kBarrier) __syncthreads();
  unsigned sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    mbarrier_wait_parity(smem_address(&full[warp][step % kSlots]), step / kSlots & 1);
    for (int i = lane; i < kTileWords; i += 32) sum += tiles[warp][step % kSlots][i] * (step + 1);
    if constexpr (kFence == Fence::kReaders) fence_proxy_async();
    __syncwarp();
    if (lane == 0 && step + kSlots < kSteps) {
      if constexpr (kFence == Fence::kCopier) fence_proxy_async();
      start(step + kSlots);
    }
  }
  out[threadIdx.x] = sum;
#endif
}

// A planted race: another warp uses the barrier, with nothing but time between.
__global__ void __launch_bounds__(kThreads) unordered(unsigned* out) {
#ifdef __CUDA_ARCH__
  __shared__ uint64 barrier;
  if (threadIdx.x == 0) {
    mbarrier_init(smem_address(&barrier), kThreads);
    fence_mbarrier_init();
  }
  if (threadIdx.x < 32) {
    __syncwarp();
  } else {
    __nanosleep(1000000);
  }
  mbarrier_arrive(smem_address(&barrier));
  mbarrier_wait_parity(smem_address(&barrier), 0);
  out[threadIdx.x] = 1;
#endif
}

template <Between kBetween, Fence kFence = Fence::kNobody>
void launch(const unsigned* in, unsigned* out) {
  streams<kBetween, kFence><<<1, kThreads>>>(in, out);
}
void launch_unordered(const unsigned*, unsigned* out) { unordered<<<1, kThreads>>>(out); }

std::vector<unsigned> expected(const std::vector<unsigned>& in) {
  std::vector<unsigned> out(kThreads);
  for (int i = 0; i < kTiles * kTileWords; ++i) {
    const int tile = i / kTileWords;
    out[tile % kWarps * 32 + i % 32] += in[i] * (tile / kWarps + 1);
  }
  return out;
}

}  // namespace
}  // namespace attune

int main(int argc, char** argv) {
  using namespace attune;
  return run_case(argc, argv,
                  {{"cta-barrier", launch<Between::kBarrier>, expected},
                   {"same-thread", launch<Between::kNothing>, expected},
                   {"same-thread-syncwarp", launch<Between::kSyncWarp>, expected},
                   {"reader-fence", launch<Between::kBarrier, Fence::kReaders>, expected},
                   {"copier-fence", launch<Between::kBarrier, Fence::kCopier>, expected},
                   {"planted", launch_unordered, expected, true}},
                  kTiles * kTileWords);
}
