// The host device: launches, graphs and errors, and planted bugs of kernels, each found by name.
#include <cstring>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/support/host_kernels.h"

namespace attune {
namespace {

struct alignas(64) RingParams {
  TensorMap map;
  DevicePtr in = 0;
  DevicePtr out = 0;
  int count = 0;
};

constexpr std::string_view kParams = R"(
struct alignas(64) RingParams {
  unsigned char map[128];
  const float* in;
  float* out;
  int count;
};
)";

// Runs a kernel of one CTA on `in` and returns `num_out` floats.
std::vector<float> run(const HostBench& bench, std::string_view text, unsigned threads,
                       std::vector<float> in, std::size_t num_out, int smem_bytes = 8192,
                       unsigned cluster = 1) {
  const Source source = unit_of(std::string(kParams) + std::string(text), {"kernel"});
  const Module module = bench.device->load(bench.compile(source));
  const Kernel kernel = bench.device->kernel(module, "kernel", smem_bytes);
  const DeviceMem input = bench.device->allocate(in.size() * sizeof(float));
  const DeviceMem output = bench.device->allocate(num_out * sizeof(float));
  bench.device->copy_to_device(input.ptr(), std::as_bytes(std::span(in)), nullptr);
  RingParams params;
  params.in = input.ptr();
  params.out = output.ptr();
  params.count = static_cast<int>(in.size());
  TensorMapSpec spec;
  spec.type = TensorMapType::kFloat32;
  spec.rank = 1;
  spec.address = input.ptr();
  spec.size[0] = in.size();
  spec.box[0] = 64;
  params.map = bench.device->tensor_map(spec);
  const KernelLaunch launch{.grid = {cluster, 1, 1},
                            .block = {threads, 1, 1},
                            .smem_bytes = smem_bytes,
                            .cluster = {cluster, 1, 1}};
  bench.device->launch(kernel, launch, &params, nullptr);
  std::vector<float> out(num_out);
  bench.device->copy_to_host(std::as_writable_bytes(std::span(out)), output.ptr(), nullptr);
  return out;
}

std::vector<float> numbers(std::size_t count) {
  std::vector<float> all(count);
  std::iota(all.begin(), all.end(), 1.0f);
  return all;
}

// Boxes of 64 floats through two slots; every one is added to out[0..63]. PHASE and FENCE are what
// the planted bugs change.
std::string ring_kernel(std::string_view phase) {
  std::string text = R"(
extern "C" __global__ void kernel(const __grid_constant__ RingParams p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32 full = smem_address(smem);
  const uint32 slots = full + 1024;
  const int boxes = p.count / 64;
  const int thread = threadIdx.x;
  if (thread == 0) {
    for (int slot = 0; slot < 2; ++slot) mbarrier_init(full + 8 * slot, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  const auto load = [&](int box) {
    if (thread != 0 || box >= boxes) return;
    mbarrier_arrive_expect_tx(full + 8 * (box % 2), 256);
    cp_async_bulk_tensor_load(slots + 256 * (box % 2), &p.map, {box * 64}, full + 8 * (box % 2));
  };
  load(0);
  load(1);
  float sum = 0.0f;
  for (int box = 0; box < boxes; ++box) {
    mbarrier_wait_parity(full + 8 * (box % 2), PHASE);
    sum += reinterpret_cast<const float*>(smem + 1024 + 256 * (box % 2))[thread];
    __syncthreads();
    load(box + 2);
  }
  p.out[thread] = sum;
}
)";
  text.replace(text.find("PHASE"), 5, phase);
  return text;
}

constexpr std::string_view kRightPhase = "box / 2 % 2";
constexpr std::string_view kWrongPhase = "0";

std::vector<float> sums_of_boxes(const std::vector<float>& in) {
  std::vector<float> sums(64);
  for (std::size_t i = 0; i < in.size(); ++i) sums[i % 64] += in[i];
  return sums;
}

HostDeviceOptions checked(bool early_copies = false) {
  return {.target = {.checks = HostChecks::kAccesses}, .early_copies = early_copies};
}

TEST(HostDevice, RunsARingOfBulkCopies) {
  const auto in = numbers(64 * 7);
  for (const bool early : {false, true}) {
    EXPECT_EQ(run(HostBench({.early_copies = early}), ring_kernel(kRightPhase), 64, in, 64),
              sums_of_boxes(in));
    EXPECT_EQ(run(HostBench(checked(early)), ring_kernel(kRightPhase), 64, in, 64),
              sums_of_boxes(in));
  }
}

TEST(HostDevice, FindsAWrongPhaseOfAnMbarrier) {
  const auto in = numbers(64 * 7);
  const std::string fault =
      fault_of([&] { run(HostBench(checked()), ring_kernel(kWrongPhase), 64, in, 64); });
  EXPECT_NE(fault.find("race on shared memory"), std::string::npos) << fault;
  EXPECT_NE(fault.find("cp.async.bulk"), std::string::npos) << fault;
  // Without checks: the slot is filled a second time while the first copy into it is still out.
  const std::string late =
      fault_of([&] { run(HostBench(), ring_kernel(kWrongPhase), 64, in, 64); });
  EXPECT_NE(late.find("wrong use of a barrier"), std::string::npos) << late;
}

TEST(HostDevice, FindsADeadlockAndSaysWhoWaits) {
  constexpr std::string_view kText = R"(
extern "C" __global__ void kernel(const __grid_constant__ RingParams p) {
  if (threadIdx.x < 32) {
    bar_sync(1, 64);
  } else if (threadIdx.x < 40) {
    __syncwarp(0xffffffffu);
  } else if (threadIdx.x < 60) {
    bar_sync(2, 64);
  }
  p.out[threadIdx.x] = 1.0f;
}
)";
  const std::string fault = fault_of([&] { run(HostBench(), kText, 64, numbers(64), 64); });
  EXPECT_NE(fault.find("deadlock"), std::string::npos) << fault;
  EXPECT_NE(fault.find("threads 0-31 wait at bar.sync 1 (32 of 64 threads have arrived)"),
            std::string::npos)
      << fault;
  EXPECT_NE(fault.find("threads 32-39 wait at __syncwarp"), std::string::npos) << fault;
  EXPECT_NE(fault.find("threads 60-63 have ended"), std::string::npos) << fault;
}

TEST(HostDevice, FindsAnMbarrierThatWaitsForBytesThatDoNotCome) {
  constexpr std::string_view kText = R"(
extern "C" __global__ void kernel(const __grid_constant__ RingParams p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32 full = smem_address(smem);
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    mbarrier_arrive_expect_tx(full, 512);
    cp_async_bulk_tensor_load(full + 1024, &p.map, {0}, full);
  }
  __syncthreads();
  mbarrier_wait_parity(full, 0);
}
)";
  const std::string fault = fault_of([&] { run(HostBench(), kText, 32, numbers(64), 64); });
  EXPECT_NE(fault.find("threads 0-31 wait for the phase of parity 0 of the mbarrier at dynamic "
                       "shared memory offset 0"),
            std::string::npos)
      << fault;
}

TEST(HostDevice, FindsLanesInDifferentOperations) {
  constexpr std::string_view kText = R"(
extern "C" __global__ void kernel(const __grid_constant__ RingParams p) {
  p.out[threadIdx.x] = threadIdx.x < 16 ? __shfl_xor_sync(0xffffffffu, 1.0f, 1)
                                        : static_cast<float>(__any_sync(0xffffffffu, 1));
}
)";
  const std::string fault = fault_of([&] { run(HostBench(), kText, 32, numbers(64), 64); });
  EXPECT_NE(fault.find("lane 16 of warp 0 is at vote.any"), std::string::npos) << fault;
  EXPECT_NE(fault.find("are at shfl.bfly"), std::string::npos) << fault;
}

// CUDA asks for the lanes of a mask that have not exited.
TEST(HostDevice, NobodyWaitsForLanesThatHaveEnded) {
  constexpr std::string_view kText = R"(
extern "C" __global__ void kernel(const __grid_constant__ RingParams p) {
  if (threadIdx.x < 4) return;
  const unsigned first = __ballot_sync(0xffffffffu, 1);
  if (threadIdx.x == 31) return;
  const int all = __all_sync(0xffffffffu, 1);
  __syncwarp();
  p.out[threadIdx.x] = first == 0xfffffff0u && all ? 1.0f : 0.0f;
}
)";
  const auto out = run(HostBench(checked()), kText, 32, numbers(64), 64);
  for (std::size_t i = 4; i < 31; ++i) EXPECT_EQ(out[i], 1.0f) << i;
}

TEST(HostDevice, FindsAnMmaOfHalfAWarp) {
  constexpr std::string_view kText = R"(
extern "C" __global__ void kernel(const __grid_constant__ RingParams p) {
  if (threadIdx.x < 16) return;
  float d[4] = {};
  const uint32 a[4] = {};
  mma_m16n8k16(d, a, 0, 0);
  p.out[threadIdx.x] = d[0];
}
)";
  const std::string fault = fault_of([&] { run(HostBench(), kText, 32, numbers(64), 64); });
  EXPECT_NE(fault.find("mma.sync.m16n8k16 of warp 0 by the lanes 0xffff0000 only"),
            std::string::npos)
      << fault;
}

TEST(HostDevice, NamesTheSharedMemoryThatIsNotThere) {
  constexpr std::string_view kText = R"(
extern "C" __global__ void kernel(const __grid_constant__ RingParams p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  reinterpret_cast<float*>(smem)[threadIdx.x] = 1.0f;
  p.out[threadIdx.x] = 1.0f;
}
)";
  const std::string fault =
      fault_of([&] { run(HostBench(checked()), kText, 32, numbers(64), 64, 64); });
  EXPECT_NE(fault.find("out of range"), std::string::npos) << fault;
  EXPECT_NE(fault.find("store of 4 bytes at shared memory offset 64"), std::string::npos) << fault;
  EXPECT_NE(fault.find("thread=(16,0,0)"), std::string::npos) << fault;
}

TEST(HostDevice, CountsWithAtomicsOverAllCtas) {
  constexpr std::string_view kText = R"(
extern "C" __global__ void kernel(const __grid_constant__ RingParams p) {
  __shared__ int sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, static_cast<int>(threadIdx.x));
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(p.out, static_cast<float>(sum));
}
)";
  const HostBench bench(checked());
  const Source source = unit_of(std::string(kParams) + std::string(kText), {"kernel"});
  const Module module = bench.device->load(bench.compile(source));
  const Kernel kernel = bench.device->kernel(module, "kernel", 0);
  const DeviceMem out = bench.device->allocate(sizeof(float));
  bench.device->fill_bytes(out.ptr(), 0, sizeof(float), nullptr);
  RingParams params;
  params.out = out.ptr();
  bench.device->launch(kernel, {.grid = {20, 1, 1}, .block = {96, 1, 1}}, &params, nullptr);
  float sum = 0;
  bench.device->copy_to_host(std::as_writable_bytes(std::span(&sum, 1)), out.ptr(), nullptr);
  EXPECT_EQ(sum, 20.0f * (95 * 96 / 2));
}

TEST(HostDevice, CtasOfAClusterReadEachOthersSharedMemory) {
  constexpr std::string_view kText = R"(
extern "C" __global__ void kernel(const __grid_constant__ RingParams p) {
  __shared__ float own[32];
  own[threadIdx.x] = p.in[blockIdx.x * 32 + threadIdx.x];
  barrier_cluster_arrive();
  barrier_cluster_wait();
  const uint32 other = mapa(smem_address(own), cluster_ctarank() ^ 1);
  const uint32 bits = ld_shared_cluster(other + 4 * threadIdx.x);
  p.out[blockIdx.x * 32 + threadIdx.x] = __uint_as_float(bits);
  barrier_cluster_arrive();
  barrier_cluster_wait();
}
)";
  for (const HostDeviceOptions& options : {HostDeviceOptions{}, checked()}) {
    const auto out = run(HostBench(options), kText, 32, numbers(64), 64, 0, 2);
    EXPECT_EQ(out.front(), 33.0f);
    EXPECT_EQ(out.back(), 32.0f);
  }
}

TEST(HostDevice, FindsAMulticastToACtaThatIsNotThere) {
  constexpr std::string_view kText = R"(
extern "C" __global__ void kernel(const __grid_constant__ RingParams p) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const uint32 full = smem_address(smem);
  mbarrier_init(full, 1);
  mbarrier_arrive_expect_tx(full, 256);
  cp_async_bulk_tensor_load_multicast(full + 1024, &p.map, {0}, full, 5);
}
)";
  const std::string fault = fault_of([&] { run(HostBench(), kText, 1, numbers(64), 64, 8192, 2); });
  EXPECT_NE(fault.find("a multicast to the CTAs 0x5 of a cluster of 2"), std::string::npos)
      << fault;
}

TEST(HostDevice, FindsASecondArrivalAtTheClusterBarrier) {
  constexpr std::string_view kText = R"(
extern "C" __global__ void kernel(const __grid_constant__ RingParams p) {
  barrier_cluster_arrive();
  if (threadIdx.x == 0) barrier_cluster_arrive();
  barrier_cluster_wait();
}
)";
  const std::string fault = fault_of([&] { run(HostBench(), kText, 32, numbers(64), 64, 0, 2); });
  EXPECT_NE(fault.find("a second barrier.cluster.arrive"), std::string::npos) << fault;
}

TEST(HostDevice, ReplaysAGraph) {
  constexpr std::string_view kText = R"(
extern "C" __global__ void kernel(const __grid_constant__ RingParams p) {
  p.out[threadIdx.x] += p.in[threadIdx.x];
}
)";
  const HostBench bench;
  Device& device = *bench.device;
  const Module module =
      device.load(bench.compile(unit_of(std::string(kParams) + std::string(kText), {"kernel"})));
  const Kernel kernel = device.kernel(module, "kernel", 0);
  const DeviceMem in = device.allocate(4 * sizeof(float));
  const DeviceMem out = device.allocate(4 * sizeof(float));
  const auto one = numbers(4);
  device.copy_to_device(in.ptr(), std::as_bytes(std::span(one)), nullptr);
  device.fill_bytes(out.ptr(), 0, out.bytes(), nullptr);
  const Stream stream = device.create_stream();
  RingParams params;
  params.in = in.ptr();
  params.out = out.ptr();
  const Graph graph = device.capture(stream.get(), [&] {
    EXPECT_TRUE(device.is_capturing(stream.get()));
    device.launch(kernel, {.grid = {1, 1, 1}, .block = {4, 1, 1}}, &params, stream.get());
    EXPECT_THROW(device.synchronize(stream.get()), CudaError);
  });
  EXPECT_FALSE(device.is_capturing(stream.get()));
  params.out = 0;  // the graph has its own copy
  for (int i = 0; i < 3; ++i) device.launch(graph, stream.get());
  std::vector<float> sum(4);
  device.copy_to_host(std::as_writable_bytes(std::span(sum)), out.ptr(), stream.get());
  EXPECT_EQ(sum, (std::vector<float>{3, 6, 9, 12}));
}

TEST(HostDevice, RefusesWhatADriverRefuses) {
  const HostBench bench;
  const Module module = bench.device->load(bench.compile(
      unit_of(std::string(kParams) + "extern \"C\" __global__ void kernel(const RingParams p) {}",
              {"kernel"})));
  EXPECT_THROW(bench.device->kernel(module, "other", 0), CudaError);
  EXPECT_THROW(bench.device->kernel(module, "kernel", 1 << 20), CudaError);
  const Kernel kernel = bench.device->kernel(module, "kernel", 0);
  const RingParams params{};
  for (const KernelLaunch& bad :
       {KernelLaunch{.grid = {1, 1, 1}, .block = {2048, 1, 1}},
        KernelLaunch{.grid = {0, 1, 1}, .block = {32, 1, 1}},
        KernelLaunch{.grid = {3, 1, 1}, .block = {32, 1, 1}, .cluster = {2, 1, 1}},
        KernelLaunch{.grid = {32, 1, 1}, .block = {32, 1, 1}, .cluster = {32, 1, 1}},
        KernelLaunch{.grid = {1, 65536, 1}, .block = {32, 1, 1}},
        KernelLaunch{.grid = {1, 1, 1}, .block = {1, 1, 65}}}) {
    EXPECT_THROW(bench.device->launch(kernel, bad, &params, nullptr), CudaError);
  }
  EXPECT_THROW(bench.device->allocate(std::size_t{1} << 60), CudaError);
  Binary foreign;
  foreign.arch = "sm_90a";
  EXPECT_THROW(bench.device->load(foreign), InvalidArgument);
}

}  // namespace
}  // namespace attune
