#include "jit/cuda_device.h"

#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "common/error.h"
#include "jit/device_monitor.h"
#include "jit/driver.h"
#include "tests/support/require_gpu.h"

namespace attune {
namespace {

constexpr const char* kText = R"(
struct Params {
  int* out;
  int add;
  int count;
};
extern "C" __global__ void __launch_bounds__(128) add(const __grid_constant__ Params p) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  if (i < p.count) p.out[i] += p.add;
}
extern "C" __global__ void __launch_bounds__(128) use_smem(const __grid_constant__ Params p) {
  extern __shared__ int smem[];
  for (int i = threadIdx.x; i < p.count; i += 128) smem[i] = i;
  __syncthreads();
  if (threadIdx.x == 0) p.out[0] = smem[p.count - 1];
}
)";

// As in kText.
struct Params {
  DevicePtr out;
  int add;
  int count;
};

class CudaDeviceTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const Source source{
        .text = kText, .split_symbol = "device_test", .combine_symbol = {}, .headers = {}};
    binary_ = compiler().compile(source, device().info().arch);
    module_ = device().load(binary_);
    stream_ = device().create_stream();
  }

  DeviceMem upload(const std::vector<int>& values) {
    DeviceMem memory = device().allocate(values.size() * sizeof(int));
    device().copy_to_device(memory.ptr(), std::as_bytes(std::span(values)), stream_.get());
    return memory;
  }
  std::vector<int> download(const DeviceMem& memory) {
    std::vector<int> values(memory.bytes() / sizeof(int));
    device().copy_to_host(std::as_writable_bytes(std::span(values)), memory.ptr(), stream_.get());
    return values;
  }

  Binary binary_;
  Module module_;
  Stream stream_;
};

TEST_F(CudaDeviceTest, IsWatchedByItsUuid) {
  const DeviceState state = open_device_monitor(device().info())->read();
  if (state.sm_clock_mhz == 0) GTEST_SKIP() << "no NVML on this machine";
  EXPECT_GT(state.memory_clock_mhz, 0);
  // With a context, this process is on the list under one number or another.
  if (state.processes) {
    EXPECT_GE(state.processes->size(), 1u);
  }
  DeviceInfo other = device().info();
  other.uuid = "GPU-00000000-0000-0000-0000-000000000000";
  EXPECT_EQ(open_device_monitor(other)->read().sm_clock_mhz, 0);
}

TEST_F(CudaDeviceTest, DescribesItself) {
  const DeviceInfo& info = device().info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_TRUE(info.arch.starts_with("sm_"));
  EXPECT_GE(info.compute_capability(), 80);
  EXPECT_GT(info.num_sms, 0);
  EXPECT_GT(info.memory_bytes, std::size_t{1} << 30);
  EXPECT_GE(info.max_smem_per_block_bytes, 101376);
  EXPECT_GT(info.smem_per_sm_bytes, info.max_smem_per_block_bytes);
  EXPECT_EQ(info.registers_per_sm, 65536);
  EXPECT_EQ(info.max_threads_per_block, 1024);
  EXPECT_GT(info.l2_bytes, 0u);
  EXPECT_EQ(info.uuid.size(), 40u);
  EXPECT_EQ(list_devices().at(0), info);
  EXPECT_EQ(query_driver().version, info.driver_version);
  EXPECT_LE(device().free_memory_bytes(), info.memory_bytes);
}

TEST_F(CudaDeviceTest, AgreesWithThePublishedLimits) {
  const DeviceInfo& info = device().info();
  DeviceInfo published;
  try {
    published = architecture_limits(info.arch);
  } catch (const InvalidArgument&) {
    GTEST_SKIP() << "no published limits for " << info.arch;
  }
  EXPECT_EQ(info.max_smem_per_block_bytes, published.max_smem_per_block_bytes);
  EXPECT_EQ(info.smem_per_sm_bytes, published.smem_per_sm_bytes);
}

TEST_F(CudaDeviceTest, GivesMemoryBackAsItWasWritten) {
  const std::vector<int> values = {1, -2, 3, 1 << 30};
  const DeviceMem memory = upload(values);
  EXPECT_EQ(memory.ptr() % 256, 0u);
  EXPECT_EQ(download(memory), values);
}

TEST_F(CudaDeviceTest, FillsBytes) {
  const DeviceMem memory = upload({1, 2, 3});
  device().fill_bytes(memory.ptr(), 0xff, 8, stream_.get());
  EXPECT_EQ(download(memory), (std::vector<int>{-1, -1, 3}));
}

TEST_F(CudaDeviceTest, TakesEmptyBuffers) {
  const DeviceMem memory = device().allocate(0);
  EXPECT_NE(memory.ptr(), 0u);
  EXPECT_EQ(memory.bytes(), 0u);
  EXPECT_TRUE(download(memory).empty());
  device().fill_bytes(memory.ptr(), 1, 0, stream_.get());
}

TEST_F(CudaDeviceTest, NamesTheStatusWhenMemoryRunsOut) {
  try {
    device().allocate(std::size_t{1} << 50);
    FAIL() << "allocated a pebibyte";
  } catch (const CudaError& error) {
    EXPECT_EQ(error.code(), 2);
    EXPECT_EQ(error.name(), "CUDA_ERROR_OUT_OF_MEMORY");
    EXPECT_NE(std::string(error.what()).find("bytes=1125899906842624"), std::string::npos);
  }
}

TEST_F(CudaDeviceTest, FreesMemoryWithItsOwner) {
  const std::size_t before = device().free_memory_bytes();
  for (int i = 0; i < 64; ++i) device().allocate(std::size_t{256} << 20);
  EXPECT_LT(before - device().free_memory_bytes(), std::size_t{300} << 20);
}

// Where a driver is, NVRTC would answer a repeated compile from a cache of its own, without the log
// of ptxas.
TEST_F(CudaDeviceTest, ReportsResourcesOfARepeatedCompileToo) {
  const Source source{
      .text = kText, .split_symbol = "device_test", .combine_symbol = {}, .headers = {}};
  for (int i = 0; i < 3; ++i) {
    const Binary again = compiler().compile(source, device().info().arch);
    EXPECT_EQ(again.kernels, binary_.kernels);
    EXPECT_EQ(again.kernels.size(), 2u);
    EXPECT_EQ(again.cubin, binary_.cubin);
  }
}

TEST_F(CudaDeviceTest, PassesParametersByValue) {
  const DeviceMem memory = upload({10, 20, 30});
  const Kernel add = device().kernel(module_, "add", 0);
  Params params{memory.ptr(), 5, 2};
  device().launch(add, {{1, 1, 1}, {128, 1, 1}, 0}, &params, stream_.get());
  params.add = 1000;
  EXPECT_EQ(download(memory), (std::vector<int>{15, 25, 30}));
}

TEST_F(CudaDeviceTest, AdmitsSharedMemoryUpToTheOptInLimit) {
  const int smem_bytes = device().info().max_smem_per_block_bytes;
  const Kernel kernel = device().kernel(module_, "use_smem", smem_bytes);
  const KernelLaunch shape{{1, 1, 1}, {128, 1, 1}, smem_bytes};
  EXPECT_EQ(device().resident_blocks(kernel, shape), 1);
  const DeviceMem memory = upload({0});
  const Params params{memory.ptr(), 0, smem_bytes / 4};
  device().launch(kernel, shape, &params, stream_.get());
  EXPECT_EQ(download(memory), std::vector<int>{smem_bytes / 4 - 1});
  EXPECT_THROW(device().kernel(module_, "use_smem", smem_bytes + 1), CudaError);
}

TEST_F(CudaDeviceTest, RefusesASymbolThatIsNotThere) {
  try {
    device().kernel(module_, "nosuch", 0);
    FAIL() << "found it";
  } catch (const CudaError& error) {
    EXPECT_EQ(error.name(), "CUDA_ERROR_NOT_FOUND");
    EXPECT_NE(std::string(error.what()).find("symbol=nosuch"), std::string::npos);
  }
}

TEST_F(CudaDeviceTest, RefusesALaunchThatIsTooLargeAndGoesOn) {
  const DeviceMem memory = upload({0});
  const Kernel add = device().kernel(module_, "add", 0);
  const Params params{memory.ptr(), 1, 1};
  EXPECT_THROW(device().launch(add, {{1, 1, 1}, {2048, 1, 1}, 0}, &params, stream_.get()),
               CudaError);
  device().launch(add, {{1, 1, 1}, {128, 1, 1}, 0}, &params, stream_.get());
  EXPECT_EQ(download(memory), std::vector<int>{1});
}

TEST_F(CudaDeviceTest, RefusesABinaryOfAnotherArchitectureOrWithoutCode) {
  Binary other = binary_;
  other.arch = "sm_70";
  EXPECT_THROW(device().load(other), InvalidArgument);
  other = binary_;
  other.cubin.clear();
  EXPECT_THROW(device().load(other), InvalidArgument);
  other = binary_;
  other.cubin.assign(64, std::byte{7});
  EXPECT_THROW(device().load(other), CudaError);
}

TEST_F(CudaDeviceTest, CapturesWithoutRunningAndReplays) {
  const DeviceMem memory = upload({0});
  const Kernel add = device().kernel(module_, "add", 0);
  const Params params{memory.ptr(), 1, 1};
  const Graph graph = device().capture(stream_.get(), [&] {
    EXPECT_TRUE(device().is_capturing(stream_.get()));
    for (int i = 0; i < 3; ++i) {
      device().launch(add, {{1, 1, 1}, {128, 1, 1}, 0}, &params, stream_.get());
    }
  });
  EXPECT_FALSE(device().is_capturing(stream_.get()));
  EXPECT_EQ(download(memory), std::vector<int>{0});
  device().launch(graph, stream_.get());
  device().launch(graph, stream_.get());
  EXPECT_EQ(download(memory), std::vector<int>{6});
}

TEST_F(CudaDeviceTest, LeavesCaptureWhenTheWorkThrows) {
  EXPECT_THROW(device().capture(stream_.get(), [] { throw InvalidArgument("stop"); }),
               InvalidArgument);
  EXPECT_FALSE(device().is_capturing(stream_.get()));
  const DeviceMem memory = upload({4});
  EXPECT_EQ(download(memory), std::vector<int>{4});
}

TEST_F(CudaDeviceTest, RefusesToCaptureTheDefaultStream) {
  EXPECT_THROW(device().capture(nullptr, [] {}), CudaError);
}

TEST_F(CudaDeviceTest, TimesWorkBetweenEvents) {
  const DeviceMem memory = device().allocate(std::size_t{1} << 30);
  const Event begin = device().create_event();
  const Event end = device().create_event();
  device().fill_bytes(memory.ptr(), 0, memory.bytes(), stream_.get());
  device().record(begin, stream_.get());
  device().fill_bytes(memory.ptr(), 1, memory.bytes(), stream_.get());
  device().record(end, stream_.get());
  const double time_us = device().elapsed_us(begin, end);
  EXPECT_GT(time_us, 50);      // 20 TB/s
  EXPECT_LT(time_us, 100000);  // 10 GB/s
}

TEST_F(CudaDeviceTest, WorksFromAThreadWithoutAContextAndLeavesItSo) {
  const auto driver = load_driver();
  std::thread([&] {
    const DeviceMem memory = upload({42});
    EXPECT_EQ(download(memory), std::vector<int>{42});
    CuHandle current = &current;
    EXPECT_EQ(driver->ctx_get_current(&current), kCudaSuccess);
    EXPECT_EQ(current, nullptr);
  }).join();
}

TEST_F(CudaDeviceTest, KeepsHandlesUsableUntilTheirEnd) {
  DeviceMem memory;
  Stream stream;
  {
    const auto second = open_cuda_device(0);
    memory = second->allocate(1024);
    stream = second->create_stream();
  }
  memory = DeviceMem();
  stream = Stream();
  EXPECT_EQ(download(upload({1})), std::vector<int>{1});
}

TEST_F(CudaDeviceTest, RefusesADeviceThatIsNotThere) {
  EXPECT_THROW(open_cuda_device(-1), DeviceUnavailable);
  EXPECT_THROW(open_cuda_device(query_driver().num_devices), DeviceUnavailable);
}

TEST_F(CudaDeviceTest, LoadsAndUnloadsWithoutGrowth) {
  const std::size_t before = device().free_memory_bytes();
  for (int i = 0; i < 500; ++i) {
    const Module module = device().load(binary_);
    device().kernel(module, "add", 0);
  }
  const std::size_t after = device().free_memory_bytes();
  EXPECT_LT(before > after ? before - after : 0, std::size_t{10} << 20);
}

}  // namespace
}  // namespace attune
