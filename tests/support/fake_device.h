// A Device on host memory for tests that need no GPU: device pointers are host pointers, launches
// call a function of the test, and time stands still unless the test moves it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/error.h"
#include "jit/device.h"
#include "templates/params.h"

namespace attune {

// An H200 as the driver describes it.
inline DeviceInfo fake_device_info() {
  DeviceInfo info;
  info.name = "NVIDIA H200";
  info.arch = "sm_90a";
  info.compute_major = 9;
  info.compute_minor = 0;
  info.num_sms = 132;
  info.memory_bytes = std::size_t{140} << 30;
  info.max_smem_per_block_bytes = 232448;
  info.smem_per_sm_bytes = 233472;
  info.registers_per_sm = 65536;
  info.max_threads_per_block = 1024;
  info.l2_bytes = std::size_t{60} << 20;
  info.uuid = "GPU-00000000-0000-0000-0000-000000000000";
  info.driver_version = "13.0";
  return info;
}

class FakeDevice : public Device {
  struct Counts {  // shared with handles, which may outlive the device
    std::mutex mutex;
    std::size_t bytes = 0;
    int allocations = 0;
    int modules = 0;
    int launches = 0;
  };
  template <typename F>
  auto locked(const F& body) const {
    const std::lock_guard lock(counts_->mutex);
    return body();
  }

 public:
  explicit FakeDevice(DeviceInfo info = fake_device_info()) : info_(std::move(info)) {}

  // What a launch does, for instance compute the answer on the CPU or throw. Not called during
  // capture, only when the graph is launched.
  std::function<void(const Kernel& kernel, const KernelLaunch& shape, const void* params)>
      on_launch;
  // May throw to make a module load fail.
  std::function<void(const Binary& binary)> on_load;
  // Sees the name of every call ("allocate", "launch", "launch_graph", ...) before it is done.
  std::function<void(std::string_view call)> on_call;
  // The time that events record. By default the member below, which launches may advance.
  std::function<double()> clock_us = [this] { return now_us; };
  double now_us = 0;
  int blocks_per_sm = 1;

  // The symbol that a kernel of this device was looked up by.
  static const std::string& symbol_of(const Kernel& kernel) { return entry(kernel).symbol; }
  // The binary key of the module a kernel belongs to.
  static Digest binary_key_of(const Kernel& kernel) { return entry(kernel).binary_key; }

  std::size_t live_bytes() const {
    return locked([&] { return counts_->bytes; });
  }
  int live_allocations() const {
    return locked([&] { return counts_->allocations; });
  }
  int live_modules() const {
    return locked([&] { return counts_->modules; });
  }
  int num_launches() const {
    return locked([&] { return counts_->launches; });
  }  // replays too

  const DeviceInfo& info() const override { return info_; }
  std::size_t free_memory_bytes() const override { return info_.memory_bytes - live_bytes(); }

  DeviceMem allocate(std::size_t bytes) override {
    called("allocate");
    if (bytes > free_memory_bytes()) {
      throw CudaError("cannot allocate device memory", 2, "CUDA_ERROR_OUT_OF_MEMORY",
                      "bytes=" + std::to_string(bytes));
    }
    const std::size_t rounded = (bytes + 255) / 256 * 256;
    void* memory = std::aligned_alloc(256, rounded == 0 ? 256 : rounded);
    std::memset(memory, 0xcd, rounded);  // fresh memory holds nothing useful
    locked([&] {
      ++counts_->allocations;
      counts_->bytes += bytes;
    });
    return {reinterpret_cast<DevicePtr>(memory), bytes, [counts = counts_, bytes](void* pointer) {
              std::free(pointer);
              const std::lock_guard lock(counts->mutex);
              --counts->allocations;
              counts->bytes -= bytes;
            }};
  }
  void copy_to_device(DevicePtr to, std::span<const std::byte> from, StreamHandle stream) override {
    called("copy_to_device");
    std::vector<std::byte> data(from.begin(), from.end());
    enqueue(stream, [to, data = std::move(data)] {
      if (!data.empty()) std::memcpy(reinterpret_cast<void*>(to), data.data(), data.size());
    });
  }
  void copy_to_host(std::span<std::byte> to, DevicePtr from, StreamHandle stream) override {
    called("copy_to_host");
    refuse_in_capture(stream, "copy_to_host");
    if (!to.empty()) std::memcpy(to.data(), reinterpret_cast<const void*>(from), to.size());
  }
  void fill_bytes(DevicePtr to, unsigned char value, std::size_t bytes,
                  StreamHandle stream) override {
    called("fill_bytes");
    enqueue(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
  }

  // The spec itself, as far as it fits.
  TensorMap tensor_map(const TensorMapSpec& spec) override {
    called("tensor_map");
    validate(spec);
    TensorMap map;
    std::memcpy(map.bytes, &spec, std::min(sizeof(map), sizeof(spec)));
    return map;
  }

  Stream create_stream() override {
    called("create_stream");
    return {new int(0), [](void* stream) { delete static_cast<int*>(stream); }};
  }
  void synchronize(StreamHandle stream) override {
    called("synchronize");
    refuse_in_capture(stream, "synchronize");
  }
  bool is_capturing(StreamHandle stream) const override {
    return locked([&] { return capture_ != nullptr && capture_stream_ == stream; });
  }

  Event create_event() override {
    called("create_event");
    return {new double(0), [](void* event) { delete static_cast<double*>(event); }};
  }
  void record(const Event& event, StreamHandle stream) override {
    called("record");
    double* time_us = static_cast<double*>(event.get());
    enqueue(stream, [this, time_us] { *time_us = clock_us(); });
  }
  double elapsed_us(const Event& begin, const Event& end) override {
    called("elapsed_us");
    return *static_cast<double*>(end.get()) - *static_cast<double*>(begin.get());
  }

  // As on a real device, captured work is recorded and not done.
  Graph capture(StreamHandle stream, const std::function<void()>& work) override {
    called("capture");
    auto recorded = std::make_unique<Work>();
    locked([&] {
      capture_ = recorded.get();
      capture_stream_ = stream;
    });
    try {
      work();
    } catch (...) {
      locked([&] { capture_ = nullptr; });
      throw;
    }
    locked([&] { capture_ = nullptr; });
    return {recorded.release(), [](void* graph) { delete static_cast<Work*>(graph); }};
  }
  void launch(const Graph& graph, StreamHandle stream) override {
    called("launch_graph");
    const Work& work = *static_cast<Work*>(graph.get());
    enqueue(stream, [&work] {
      for (const auto& step : work) step();
    });
  }

  Module load(const Binary& binary) override {
    called("load");
    if (on_load) on_load(binary);
    locked([&] { ++counts_->modules; });
    return {new FakeModule{binary, {}}, [counts = counts_](void* module) {
              delete static_cast<FakeModule*>(module);
              const std::lock_guard lock(counts->mutex);
              --counts->modules;
            }};
  }
  Kernel kernel(const Module& module, const std::string& symbol, int smem_bytes) override {
    called("kernel");
    FakeModule& loaded = *static_cast<FakeModule*>(module.get());
    bool found = loaded.binary.kernels.empty();
    for (const auto& known : loaded.binary.kernels) found = found || known.symbol == symbol;
    if (!found) {
      throw CudaError("cannot find kernel", 500, "CUDA_ERROR_NOT_FOUND", "symbol=" + symbol);
    }
    if (smem_bytes > info_.max_smem_per_block_bytes) {
      throw CudaError("cannot set shared memory", 1, "CUDA_ERROR_INVALID_VALUE",
                      "smem_bytes=" + std::to_string(smem_bytes));
    }
    return locked([&] {
      return Kernel{&loaded.entries.emplace_back(FakeEntry{symbol, loaded.binary.key})};
    });
  }
  void launch(const Kernel& kernel, const KernelLaunch& shape, const void* params,
              StreamHandle stream) override {
    called("launch");
    const std::string& symbol = symbol_of(kernel);
    const auto* bytes = static_cast<const std::byte*>(params);
    // By value, as the driver takes them; held in 8-byte units for their alignment.
    std::vector<std::uint64_t> copy(params_bytes(symbol) / 8);
    std::memcpy(copy.data(), bytes, copy.size() * 8);
    enqueue(stream, [this, kernel, shape, copy = std::move(copy)] {
      locked([&] { ++counts_->launches; });
      if (on_launch) on_launch(kernel, shape, copy.data());
    });
  }
  int resident_blocks(const Kernel&, const KernelLaunch&) override { return blocks_per_sm; }

 private:
  using Work = std::vector<std::function<void()>>;
  struct FakeEntry {
    std::string symbol;
    Digest binary_key;
  };
  struct FakeModule {
    Binary binary;
    std::deque<FakeEntry> entries;  // a deque: its elements never move
  };

  static const FakeEntry& entry(const Kernel& kernel) {
    return *static_cast<const FakeEntry*>(kernel.function);
  }
  static std::size_t params_bytes(const std::string& symbol) {
    if (symbol == "fill_noise") return sizeof(FillParams);
    if (symbol.starts_with("probe_")) return sizeof(ProbeParams);
    if (symbol.starts_with("prologue_")) return sizeof(PrologueParams);
    if (symbol == "write_state") return sizeof(StateParams);
    return sizeof(AttentionParams);
  }
  void called(std::string_view call) const {
    if (on_call) on_call(call);
  }
  void refuse_in_capture(StreamHandle stream, const std::string& call) const {
    if (!is_capturing(stream)) return;
    throw CudaError("cannot wait during capture", 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
                    "call=" + call);
  }
  void enqueue(StreamHandle stream, std::function<void()> step) {
    if (is_capturing(stream)) {
      locked([&] { capture_->push_back(std::move(step)); });
    } else {
      step();
    }
  }

  DeviceInfo info_;
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
  Work* capture_ = nullptr;
  StreamHandle capture_stream_ = nullptr;
};

}  // namespace attune
