// Named barriers of 256 of the 384 threads of a CTA, as two warpgroups of wgmma.cuh use them.
#include "tests/sanitizer/case.h"

namespace attune {
namespace {

constexpr int kGroup = 128;
constexpr int kThreads = 3 * kGroup;
constexpr int kBoth = 2 * kGroup;
constexpr int kRounds = 3;

enum class Named {
  kOneSite,            // both groups at one bar.sync
  kTwoSites,           // each group at a bar.sync of its own
  kTwoSitesUnaligned,  // each at a barrier.sync
  kSyncArrive,         // one at bar.sync, the other at bar.arrive
  kOfGroups,           // a barrier of 128 threads for each group
  kNone,               // a planted race
};

#ifdef __CUDA_ARCH__
__device__ __forceinline__ void barrier_sync(int barrier, int num_threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(barrier), "r"(num_threads) : "memory");
}
template <Named kHow>
__device__ __forceinline__ void meet() {
  if constexpr (kHow == Named::kTwoSites) bar_sync(1, kBoth);
  if constexpr (kHow == Named::kTwoSitesUnaligned) {
    barrier_sync(1, kBoth);
    __syncwarp();
  }
}
#endif

// The groups read what the other (kOfGroups: the own one; kSyncArrive: only the first the second's)
// has written; a barrier of the same kind with another number keeps the rounds apart.
template <Named kHow, bool kSetMaxNReg>
__global__ void __launch_bounds__(kThreads, 1) named(unsigned* out) {
#ifdef __CUDA_ARCH__
  __shared__ unsigned words[kRounds][kBoth];
  const int group = threadIdx.x / kGroup;
  const int thread = threadIdx.x - kGroup;
  unsigned sum = 0;
  if (group == 0) {
    if constexpr (kSetMaxNReg) setmaxnreg_dec<24>();
    return;
  }
  if constexpr (kSetMaxNReg) setmaxnreg_inc<240>();
  if constexpr (kHow == Named::kOneSite) {
    for (int round = 0; round < kRounds; ++round) {
      words[round][thread] = thread + round;
      bar_sync(1, kBoth);
      sum += words[round][thread ^ kGroup];
    }
  } else if (group == 1) {
    for (int round = 0; round < kRounds; ++round) {
      words[round][thread] = thread + round;
      if constexpr (kHow == Named::kSyncArrive) bar_sync(1, kBoth);
      if constexpr (kHow == Named::kOfGroups) bar_sync(4, kGroup);
      meet<kHow>();
      sum += words[round][kHow == Named::kOfGroups ? thread ^ 33 : thread ^ kGroup];
      // Nobody comes to the next round's barrier before all have left this one's.
      if constexpr (kHow == Named::kSyncArrive) bar_arrive(2, kBoth);
    }
  } else {
    // Other code, so that the compiler does not make one of the two.
    for (int round = kRounds - 1; round >= 0; --round) {
      const int mine = kRounds - 1 - round;
      words[mine][thread] = thread + mine;
      if constexpr (kHow == Named::kSyncArrive) bar_arrive(1, kBoth);
      if constexpr (kHow == Named::kOfGroups) bar_sync(5, kGroup);
      meet<kHow>();
      if constexpr (kHow == Named::kSyncArrive) {
        bar_sync(2, kBoth);
        sum += words[mine][thread ^ kGroup];
      } else {
        sum += words[mine][kHow == Named::kOfGroups ? thread ^ 33 : thread ^ kGroup];
      }
    }
  }
  out[thread] = sum;
#endif
}

template <Named kHow, bool kSetMaxNReg>
void launch(const unsigned*, unsigned* out) {
  named<kHow, kSetMaxNReg><<<1, kThreads>>>(out);
}

template <Named kHow>
std::vector<unsigned> expected(const std::vector<unsigned>&) {
  std::vector<unsigned> out(kBoth);
  for (int thread = 0; thread < kBoth; ++thread) {
    for (int round = 0; round < kRounds; ++round) {
      out[thread] += (kHow == Named::kOfGroups ? thread ^ 33 : thread ^ kGroup) + round;
    }
  }
  return out;
}

template <Named kHow, bool kSetMaxNReg = false>
Case make(std::string_view name) {
  return {name, launch<kHow, kSetMaxNReg>, expected<kHow>, kHow == Named::kNone};
}

}  // namespace
}  // namespace attune

int main(int argc, char** argv) {
  using namespace attune;
  return run_case(
      argc, argv,
      {make<Named::kOneSite>("one-site"), make<Named::kTwoSites>("two-sites"),
       make<Named::kTwoSitesUnaligned>("two-sites-unaligned"),
       make<Named::kSyncArrive>("sync-arrive"), make<Named::kOfGroups>("of-groups"),
       make<Named::kOneSite, true>("setmaxnreg-one-site"),
       make<Named::kTwoSites, true>("setmaxnreg-two-sites"),
       make<Named::kSyncArrive, true>("setmaxnreg-sync-arrive"), make<Named::kNone>("planted")},
      1);
}
