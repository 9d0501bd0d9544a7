// Launches of the host device: what they take of the process, and threads that leave early.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "tests/support/host_kernels.h"

namespace attune {
namespace {

constexpr std::string_view kParams = R"(
struct LaunchParams {
  alignas(64) unsigned char map[128];
  int* out;
};
)";
struct alignas(64) LaunchParams {
  TensorMap map;
  DevicePtr out = 0;
};

// A kernel of one CTA that writes numbers.
class LaunchBench {
 public:
  LaunchBench(std::string_view text, unsigned num_threads)
      : bench_({.num_workers = 1}),
        num_threads_(num_threads),
        module_(bench_.device->load(
            bench_.compile(unit_of(std::string(kParams) + std::string(text), {"kernel"})))),
        kernel_(bench_.device->kernel(module_, "kernel", 0)),
        out_(bench_.device->allocate(num_threads * sizeof(int))) {
    bench_.device->fill_bytes(out_.ptr(), 0, out_.bytes(), nullptr);
  }

  std::vector<int> run() const {
    LaunchParams params;
    params.out = out_.ptr();
    bench_.device->launch(kernel_, {.grid = {1, 1, 1}, .block = {num_threads_, 1, 1}}, &params,
                          nullptr);
    std::vector<int> out(num_threads_);
    bench_.device->copy_to_host(std::as_writable_bytes(std::span(out)), out_.ptr(), nullptr);
    return out;
  }

 private:
  HostBench bench_;
  unsigned num_threads_;
  Module module_;
  Kernel kernel_;
  DeviceMem out_;
};

constexpr std::string_view kBarrierKernel = R"(
extern "C" __global__ void kernel(const __grid_constant__ LaunchParams p) {
  __syncthreads();
  p.out[threadIdx.x] = 1;
}
)";

// Sanitizers make maps of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

std::ptrdiff_t num_memory_maps() {
  std::ifstream maps("/proc/self/maps");
  return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
}

TEST(HostLaunch, StacksTakeFewMemoryMaps) {
  const LaunchBench bench(kBarrierKernel, 1024);
  const std::ptrdiff_t before = num_memory_maps();
  EXPECT_EQ(bench.run(), std::vector<int>(1024, 1));
  EXPECT_LT(num_memory_maps() - before, 256);
}

TEST(HostLaunch, ReportsThatThereIsNoMemoryForStacks) {
  const LaunchBench bench(kBarrierKernel, 1024);
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
  rlimit low = limit;
  low.rlim_cur = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (64 << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &low), 0);
  std::string error;
  try {
    bench.run();
  } catch (const Error& thrown) {
    error = thrown.what();
  }
  setrlimit(RLIMIT_AS, &limit);
  EXPECT_TRUE(error.starts_with("cannot allocate a stack")) << error;
  EXPECT_EQ(bench.run(), std::vector<int>(1024, 1));
}

#endif

TEST(HostLaunch, AnEndedThreadArrivesForNobodyElseAtTheClusterBarrier) {
  const LaunchBench bench(R"(
extern "C" __global__ void kernel(const __grid_constant__ LaunchParams p) {
  __shared__ int shared[32];
  const unsigned warp = threadIdx.x / 32;
  if (warp == 2) shared[threadIdx.x % 32] = 7;
  barrier_cluster_arrive();
  if (warp == 0) return;
  barrier_cluster_wait();
  p.out[threadIdx.x] = shared[threadIdx.x % 32];
}
)",
                          96);
  std::vector<int> expected(96, 7);
  std::fill_n(expected.begin(), 32, 0);
  EXPECT_EQ(bench.run(), expected);
}

TEST(HostLaunch, ADeadlockInAWarpgroupNamesIt) {
  const LaunchBench bench(R"(
extern "C" __global__ void kernel(const __grid_constant__ LaunchParams) {
  if (threadIdx.x >= 160) wgmma_commit_group();
}
)",
                          256);
  const std::string fault = fault_of([&] { bench.run(); });
  EXPECT_NE(fault.find("threads 160-255 wait at wgmma.commit_group for the other threads of "
                       "warpgroup 1"),
            std::string::npos)
      << fault;
}

TEST(HostLaunch, ShufflesTakeFiveBitsOfTheirOperand) {
  const LaunchBench bench(R"(
extern "C" __global__ void kernel(const __grid_constant__ LaunchParams p) {
  const int lane = static_cast<int>(threadIdx.x);
  const int up = __shfl_up_sync(0xffffffffu, lane, 0xffffffffu);
  const int down = __shfl_down_sync(0xffffffffu, lane, 33);
  p.out[lane] = up * 100 + down;
}
)",
                          32);
  const std::vector<int> out = bench.run();
  for (int lane = 0; lane < 32; ++lane) {
    const int up = lane == 31 ? 0 : lane;
    EXPECT_EQ(out[static_cast<std::size_t>(lane)], up * 100 + std::min(lane + 1, 31));
  }
}

TEST(HostLaunch, AtomicSumsOfIntegersWrap) {
  const LaunchBench bench(R"(
extern "C" __global__ void kernel(const __grid_constant__ LaunchParams p) {
  atomicAdd(p.out, 0x7fffffff);
}
)",
                          2);
  EXPECT_EQ(bench.run(), (std::vector<int>{-2, 0}));
}

TEST(HostLaunch, FindsABoxOfNoTensorMap) {
  const LaunchBench bench(R"(
extern "C" __global__ void kernel(const __grid_constant__ LaunchParams p) {
  __shared__ __align__(1024) unsigned char shared[1024];
  const uint32 at = smem_address(shared);
  mbarrier_init(at, 1);
  cp_async_bulk_tensor_load(at + 128, &p.map, {0}, at);
}
)",
                          1);
  const std::string fault = fault_of([&] { bench.run(); });
  EXPECT_NE(fault.find("not a tensor map of the host device"), std::string::npos) << fault;
}

}  // namespace
}  // namespace attune
