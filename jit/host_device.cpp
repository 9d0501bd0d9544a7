#include "jit/host_device.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/host/host_errors.h"
#include "jit/host/host_info.h"
#include "jit/host/host_module.h"
#include "jit/host/launch_pool.h"
#include "jit/host/operations.h"
#include "jit/host/tensor_map.h"
#include "jit/machine_limits.h"

namespace attune {
namespace {

using host::host_error;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kAllocationAlignment = 256;
constexpr std::size_t kParamsAlignment = 64;  // of a tensor map
// Of every GPU that the templates run on (CUDA C++ Programming Guide 13.0, "Compute Capabilities").
constexpr unsigned kMaxGridX = (1u << 31) - 1, kMaxGridYz = 65535, kMaxBlockZ = 64;
constexpr unsigned kMaxClusterCtas = 16;  // of an H200, where a kernel asks for more than 8

// A kernel of a loaded module, as Kernel::function points to it.
struct HostKernel {
  std::shared_ptr<const host::HostModule> module;
  std::string symbol;
  host::EntryPoint entry;
};

struct HostModuleHandle {
  std::shared_ptr<const host::HostModule> module;
  std::mutex mutex;  // guards what follows
  std::map<std::string, HostKernel> kernels;
};

using HostGraph = std::vector<std::function<void()>>;

struct HostStream {
  HostGraph* recording = nullptr;
};

struct HostEvent {
  Clock::time_point time;
};

HostStream* stream_of(StreamHandle stream) { return static_cast<HostStream*>(stream); }

// A copy of a kernel's arguments.
class Params {
 public:
  Params(const void* params, std::size_t bytes) : storage_(bytes + kParamsAlignment) {
    const auto begin = reinterpret_cast<std::uintptr_t>(storage_.data());
    aligned_ = storage_.data() + (kParamsAlignment - begin % kParamsAlignment) % kParamsAlignment;
    std::memcpy(aligned_, params, bytes);
  }
  Params(const Params&) = delete;
  Params& operator=(const Params&) = delete;
  const void* data() const { return aligned_; }

 private:
  std::vector<std::byte> storage_;
  std::byte* aligned_;
};

int code_of(host::FaultKind kind) {
  switch (kind) {
    case host::FaultKind::kOutOfRange:
    case host::FaultKind::kReadOnly:
      return host::kIllegalAddress;
    case host::FaultKind::kMisaligned:
      return host::kMisalignedAddress;
    case host::FaultKind::kTrap:
      return host::kAssert;
    default:
      return host::kLaunchFailed;
  }
}

host::Index3 index3(const Dim3& dim) { return {dim.x, dim.y, dim.z}; }

class HostDevice final : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options)
      : options_(options),
        info_(host_device_info(options.target)),
        memory_(std::make_shared<host::MemoryMap>()),
        pool_(options.num_workers > 0 ? options.num_workers : info_.num_sms,
              options.target.checks == HostChecks::kAccesses ? memory_.get() : nullptr) {}

  const DeviceInfo& info() const override { return info_; }
  std::size_t free_memory_bytes() const override { return machine_limits().free_bytes; }

  DeviceMem allocate(std::size_t bytes) override;
  void copy_to_device(DevicePtr to, std::span<const std::byte> from, StreamHandle stream) override {
    refuse_capture(stream, "a copy to the device");
    if (!from.empty()) std::memcpy(reinterpret_cast<void*>(to), from.data(), from.size());
  }
  void copy_to_host(std::span<std::byte> to, DevicePtr from, StreamHandle stream) override {
    refuse_capture(stream, "a copy from the device");
    if (!to.empty()) std::memcpy(to.data(), reinterpret_cast<const void*>(from), to.size());
  }
  void fill_bytes(DevicePtr to, unsigned char value, std::size_t bytes,
                  StreamHandle stream) override {
    run_or_record(stream, [=] {
      if (bytes != 0) std::memset(reinterpret_cast<void*>(to), value, bytes);
    });
  }
  TensorMap tensor_map(const TensorMapSpec& spec) override { return host::encode_tensor_map(spec); }

  Stream create_stream() override {
    return {new HostStream, [](void* handle) { delete static_cast<HostStream*>(handle); }};
  }
  void synchronize(StreamHandle stream) override { refuse_capture(stream, "synchronizing"); }
  bool is_capturing(StreamHandle stream) const override {
    return stream != nullptr && stream_of(stream)->recording != nullptr;
  }

  Event create_event() override {
    return {new HostEvent, [](void* handle) { delete static_cast<HostEvent*>(handle); }};
  }
  void record(const Event& event, StreamHandle stream) override {
    auto* const to = static_cast<HostEvent*>(event.get());
    run_or_record(stream, [to] { to->time = Clock::now(); });
  }
  double elapsed_us(const Event& begin, const Event& end) override {
    const auto time =
        static_cast<HostEvent*>(end.get())->time - static_cast<HostEvent*>(begin.get())->time;
    return std::chrono::duration<double, std::micro>(time).count();
  }

  Graph capture(StreamHandle stream, const std::function<void()>& work) override;
  void launch(const Graph& graph, StreamHandle stream) override {
    auto* const operations = static_cast<HostGraph*>(graph.get());
    run_or_record(stream, [operations] {
      for (const auto& operation : *operations) operation();
    });
  }

  Module load(const Binary& binary) override;
  Kernel kernel(const Module& module, const std::string& symbol, int smem_bytes) override;
  void launch(const Kernel& kernel, const KernelLaunch& shape, const void* params,
              StreamHandle stream) override;
  int resident_blocks(const Kernel&, const KernelLaunch&) override { return 1; }

 private:
  void refuse_capture(StreamHandle stream, const char* what) const {
    if (!is_capturing(stream)) return;
    throw host_error(host::kCaptureUnsupported, "a stream in capture takes launches only", what,
                     "move it out of the capture");
  }
  void run_or_record(StreamHandle stream, std::function<void()> operation) {
    if (is_capturing(stream)) {
      stream_of(stream)->recording->push_back(std::move(operation));
    } else {
      operation();
    }
  }
  void require_valid(const KernelLaunch& shape) const;
  void run(const HostKernel& kernel, const KernelLaunch& shape, const void* params);

  const HostDeviceOptions options_;
  const DeviceInfo info_;
  const std::shared_ptr<host::MemoryMap> memory_;  // handles may outlive the device
  host::LaunchPool pool_;
};

DeviceMem HostDevice::allocate(std::size_t bytes) {
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  void* memory = nullptr;
  if (size > free_memory_bytes() || posix_memalign(&memory, kAllocationAlignment, size) != 0) {
    throw host_error(host::kOutOfMemory, "cannot allocate device memory",
                     fmt::format("bytes={} free_bytes={}", bytes, free_memory_bytes()));
  }
  memory_->add(memory, size);
  return {reinterpret_cast<DevicePtr>(memory), bytes, [map = memory_](void* pointer) {
            map->remove(pointer);
            std::free(pointer);
          }};
}

Graph HostDevice::capture(StreamHandle stream, const std::function<void()>& work) {
  if (stream == nullptr) {
    throw host_error(host::kCaptureUnsupported, "cannot begin a graph capture", "stream=default",
                     "capture on a stream of create_stream()");
  }
  refuse_capture(stream, "another capture");
  auto graph = std::make_unique<HostGraph>();
  stream_of(stream)->recording = graph.get();
  try {
    work();
  } catch (...) {
    stream_of(stream)->recording = nullptr;
    throw;
  }
  stream_of(stream)->recording = nullptr;
  return {graph.release(), [](void* handle) { delete static_cast<HostGraph*>(handle); }};
}

Module HostDevice::load(const Binary& binary) {
  if (binary.arch != info_.arch) {
    throw InvalidArgument("the binary is for another architecture",
                          fmt::format("binary={} device={}", binary.arch, info_.arch),
                          fmt::format("compile it for {}", info_.arch));
  }
  if (binary.cubin.empty()) {
    throw InvalidArgument("the binary has no code", fmt::format("key={}", binary.key.text()));
  }
  auto handle = std::make_unique<HostModuleHandle>();
  handle->module =
      std::make_shared<const host::HostModule>(binary, host::host_abi(), options_.target.debug);
  return {handle.release(), [](void* pointer) { delete static_cast<HostModuleHandle*>(pointer); }};
}

Kernel HostDevice::kernel(const Module& module, const std::string& symbol, int smem_bytes) {
  if (smem_bytes > info_.max_smem_per_block_bytes) {
    throw host_error(host::kInvalidValue, "cannot prepare the kernel",
                     fmt::format("symbol={} smem_bytes={} limit={}", symbol, smem_bytes,
                                 info_.max_smem_per_block_bytes));
  }
  auto* const handle = static_cast<HostModuleHandle*>(module.get());
  const std::lock_guard lock(handle->mutex);
  auto& kernel = handle->kernels[symbol];
  if (kernel.module == nullptr) kernel = {handle->module, symbol, handle->module->entry(symbol)};
  return {&kernel};
}

void HostDevice::require_valid(const KernelLaunch& shape) const {
  const Dim3& grid = shape.grid;
  const Dim3& block = shape.block;
  const Dim3& cluster = shape.cluster;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  const bool in_limits = grid.x <= kMaxGridX && grid.y <= kMaxGridYz && grid.z <= kMaxGridYz &&
                         block.z <= kMaxBlockZ &&
                         threads <= static_cast<std::uint64_t>(info_.max_threads_per_block);
  const bool has_work = grid.x > 0 && grid.y > 0 && grid.z > 0 && threads > 0;
  const bool divides = cluster.x > 0 && cluster.y > 0 && cluster.z > 0 && grid.x % cluster.x == 0 &&
                       grid.y % cluster.y == 0 && grid.z % cluster.z == 0;
  if (has_work && divides && in_limits &&
      std::uint64_t{cluster.x} * cluster.y * cluster.z <= kMaxClusterCtas &&
      shape.smem_bytes >= 0 && shape.smem_bytes <= info_.max_smem_per_block_bytes) {
    return;
  }
  throw host_error(host::kInvalidValue, "cannot launch the kernel",
                   fmt::format("grid={}x{}x{} block={}x{}x{} cluster={}x{}x{} smem_bytes={}",
                               grid.x, grid.y, grid.z, block.x, block.y, block.z, cluster.x,
                               cluster.y, cluster.z, shape.smem_bytes));
}

void HostDevice::run(const HostKernel& kernel, const KernelLaunch& shape, const void* params) {
  host::Launch launch;
  launch.module = kernel.module.get();
  launch.kernel = kernel.symbol;
  launch.entry = kernel.entry;
  launch.params = params;
  launch.grid = index3(shape.grid);
  launch.block = index3(shape.block);
  launch.cluster = index3(shape.cluster);
  launch.smem_bytes = static_cast<std::uint32_t>(shape.smem_bytes);
  launch.copies = options_.early_copies ? host::CopyTiming::kEarly : host::CopyTiming::kLate;
  if (const auto fault = pool_.run(launch)) {
    throw host_error(code_of(fault->kind), "the kernel failed", to_text(*fault));
  }
}

void HostDevice::launch(const Kernel& kernel, const KernelLaunch& shape, const void* params,
                        StreamHandle stream) {
  require_valid(shape);
  const auto& host_kernel = *static_cast<const HostKernel*>(kernel.function);
  const auto copy = std::make_shared<const Params>(params, host_kernel.entry.params_bytes);
  run_or_record(stream,
                [this, host_kernel, shape, copy] { run(host_kernel, shape, copy->data()); });
}

}  // namespace

std::unique_ptr<Device> open_host_device(const HostDeviceOptions& options) {
  return std::make_unique<HostDevice>(options);
}

}  // namespace attune
