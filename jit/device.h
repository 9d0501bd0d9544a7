// The Device interface: memory, streams, events, graphs, modules, launches, properties. Implemented
// by the CUDA device (jit/cuda_device.h); the layers above know only this file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "jit/binary.h"
#include "jit/device_info.h"
#include "jit/tensor_map.h"
#include "templates/launch_plan.h"

namespace attune {

using DevicePtr = std::uint64_t;
// CUstream, CUevent, ... of the caller or of this device. nullptr is the default stream.
using StreamHandle = void*;

// Move-only owner of a device object; empty after a move; releases in its destructor, which never
// throws.
template <typename Tag>
class DeviceHandle {
 public:
  using Release = std::function<void(void*)>;
  DeviceHandle() = default;
  DeviceHandle(void* handle, Release release) : handle_(handle), release_(std::move(release)) {}
  DeviceHandle(DeviceHandle&& other) noexcept { swap(other); }
  DeviceHandle& operator=(DeviceHandle&& other) noexcept {
    DeviceHandle moved(std::move(other));
    swap(moved);
    return *this;
  }
  DeviceHandle(const DeviceHandle&) = delete;
  DeviceHandle& operator=(const DeviceHandle&) = delete;
  ~DeviceHandle() {
    if (handle_ != nullptr) release_(handle_);
  }
  void* get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  void swap(DeviceHandle& other) noexcept {
    std::swap(handle_, other.handle_);
    release_.swap(other.release_);
  }
  void* handle_ = nullptr;
  Release release_;
};

using Stream = DeviceHandle<struct StreamTag>;
using Event = DeviceHandle<struct EventTag>;
using Graph = DeviceHandle<struct GraphTag>;  // instantiated, ready to launch
using Module = DeviceHandle<struct ModuleTag>;

// Move-only owner of device memory.
class DeviceMem {
 public:
  DeviceMem() = default;
  DeviceMem(DevicePtr ptr, std::size_t bytes, std::function<void(void*)> release)
      : owner_(reinterpret_cast<void*>(ptr), std::move(release)), bytes_(bytes) {}
  DevicePtr ptr() const { return reinterpret_cast<DevicePtr>(owner_.get()); }
  std::size_t bytes() const { return bytes_; }

 private:
  DeviceHandle<struct MemTag> owner_;
  std::size_t bytes_ = 0;
};

// A kernel of a loaded module; valid as long as its Module lives.
struct Kernel {
  void* function = nullptr;
  explicit operator bool() const { return function != nullptr; }
};

class Gemm;
// Where a library for products of many tokens is looked for: libcublasLt at `cublaslt_path` alone when it
// is given (a library or a folder; the caller passes ATTUNE_CUBLASLT through it), else as NvrtcSearch
// says.
struct GemmSearch {
  std::string cublaslt_path = {};
};

// Every call throws CudaError with the driver's status on failure. Usable from several threads;
// each call makes the device's context current for its own duration and restores the caller's.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual std::size_t free_memory_bytes() const = 0;

  virtual DeviceMem allocate(std::size_t bytes) = 0;  // 256-byte aligned
  // Pageable memory has been read when it returns. Page-locked memory is read when the stream gets there, so
  // it has to stay as it is until then.
  virtual void copy_to_device(DevicePtr to, std::span<const std::byte> from,
                              StreamHandle stream) = 0;
  virtual void copy_to_host(std::span<std::byte> to, DevicePtr from,
                            StreamHandle stream) = 0;  // waits
  virtual void fill_bytes(DevicePtr to, unsigned char value, std::size_t bytes,
                          StreamHandle stream) = 0;

  // The map of a tensor in this device's memory, for kernels' parameters. Throws InvalidArgument
  // where the spec breaks a limit, DeviceUnavailable where the driver has no tensor maps.
  virtual TensorMap tensor_map(const TensorMapSpec& spec) = 0;

  virtual Stream create_stream() = 0;
  virtual void synchronize(StreamHandle stream) = 0;
  virtual bool is_capturing(StreamHandle stream) const = 0;

  virtual Event create_event() = 0;
  virtual void record(const Event& event, StreamHandle stream) = 0;
  virtual double elapsed_us(const Event& begin, const Event& end) = 0;  // waits for `end`

  // Captures what `work` enqueues on `stream` and instantiates it.
  virtual Graph capture(StreamHandle stream, const std::function<void()>& work) = 0;
  virtual void launch(const Graph& graph, StreamHandle stream) = 0;

  virtual Module load(const Binary& binary) = 0;
  // Also admits `smem_bytes` of dynamic shared memory per block (opt-in limit) with the largest
  // carveout.
  virtual Kernel kernel(const Module& module, const std::string& symbol, int smem_bytes) = 0;
  // `params` is the one by-value argument of the kernel. Never allocates or synchronizes: safe in
  // stream capture.
  virtual void launch(const Kernel& kernel, const KernelLaunch& shape, const void* params,
                      StreamHandle stream) = 0;
  // CTAs of `kernel` that fit on one SM.
  virtual int resident_blocks(const Kernel& kernel, const KernelLaunch& shape) = 0;

  // jit/gemm.h. nullptr for devices that have no such library. Throws DeviceUnavailable that says where
  // it was looked for, or why it does not start.
  virtual std::unique_ptr<Gemm> open_gemm(const GemmSearch& search);
};

// The kernels of a variant; of a linear layer `split` alone.
struct AttentionKernels {
  Module module;
  Kernel split;
  Kernel combine;
  bool share_slots = false;  // Variant::shared_slots
};
AttentionKernels load_attention(Device& device, const Binary& binary, const Variant& variant,
                                const LaunchPlan& plan);
// `params` with the tensor maps that the plan's kernels copy by; as they are where they use none.
AttentionParams with_tensor_maps(Device& device, const LaunchPlan& plan,
                                 const AttentionParams& params);
// Runs `plan` of a variant's two kernels with `params`; the combine only where the plan needs it.
// Throws InvalidArgument when the plan shares slots and the kernels were not compiled for it.
void launch_attention(Device& device, const AttentionKernels& kernels, const LaunchPlan& plan,
                      const AttentionParams& params, StreamHandle stream);

}  // namespace attune
