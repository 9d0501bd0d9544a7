#include "jit/cuda_device.h"

#include <array>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "jit/cublaslt_gemm.h"
#include "jit/cuda_query.h"
#include "jit/driver.h"

namespace attune {
namespace {

// The retained primary context of a device. Shared by the device and by every handle it gave out,
// so that handles may outlive the device.
struct CudaContext {
  std::shared_ptr<const Driver> driver;
  CuDevice device = 0;
  CuHandle context = nullptr;

  CudaContext(std::shared_ptr<const Driver> loaded, CuDevice which)
      : driver(std::move(loaded)), device(which) {
    if (const CuResult status = driver->primary_ctx_retain(&context, device)) {
      throw driver->error("cannot create the CUDA context", status);
    }
  }
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
  ~CudaContext() { driver->primary_ctx_release(device); }
};

// Makes the context current for a scope. Costs one thread-local read where it is current already,
// as on a serving thread.
class CurrentContext {
 public:
  explicit CurrentContext(const CudaContext& wanted) : driver_(*wanted.driver) {
    CuHandle current = nullptr;
    driver_.ctx_get_current(&current);
    if (current == wanted.context) return;
    if (const CuResult status = driver_.ctx_push_current(wanted.context)) {
      throw driver_.error("cannot switch to the CUDA context", status);
    }
    pushed_ = true;
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext() {
    CuHandle popped = nullptr;
    if (pushed_) driver_.ctx_pop_current(&popped);
  }

 private:
  const Driver& driver_;
  bool pushed_ = false;
};

// Runs `destroy` in the context; for release functions, which have nobody to report to.
template <typename Destroy>
void release_in(const CudaContext& context, const Destroy& destroy) noexcept {
  try {
    const CurrentContext current(context);
    destroy(*context.driver);
  } catch (const std::exception&) {  // the context is gone, and the object with it
  }
}

int driver_type(TensorMapType type) {
  switch (type) {
    case TensorMapType::kUint8:
      return kTensorMapUint8;
    case TensorMapType::kBf16:
      return kTensorMapBfloat16;
    case TensorMapType::kFloat32:
      return kTensorMapFloat32;
  }
  throw InvalidArgument("unknown tensor map type", fmt::format("value={}", static_cast<int>(type)));
}

class CudaDevice final : public Device {
 public:
  CudaDevice(std::shared_ptr<const Driver> driver, CuDevice device)
      : info_(describe_device(*driver, device)),
        context_(std::make_shared<CudaContext>(std::move(driver), device)),
        driver_(*context_->driver) {}

  const DeviceInfo& info() const override { return info_; }
  std::size_t free_memory_bytes() const override;

  DeviceMem allocate(std::size_t bytes) override;
  void copy_to_device(DevicePtr to, std::span<const std::byte> from, StreamHandle stream) override;
  void copy_to_host(std::span<std::byte> to, DevicePtr from, StreamHandle stream) override;
  void fill_bytes(DevicePtr to, unsigned char value, std::size_t bytes,
                  StreamHandle stream) override;

  TensorMap tensor_map(const TensorMapSpec& spec) override;

  Stream create_stream() override;
  void synchronize(StreamHandle stream) override;
  bool is_capturing(StreamHandle stream) const override;

  Event create_event() override;
  void record(const Event& event, StreamHandle stream) override;
  double elapsed_us(const Event& begin, const Event& end) override;

  Graph capture(StreamHandle stream, const std::function<void()>& work) override;
  void launch(const Graph& graph, StreamHandle stream) override;

  Module load(const Binary& binary) override;
  Kernel kernel(const Module& module, const std::string& symbol, int smem_bytes) override;
  void launch(const Kernel& kernel, const KernelLaunch& shape, const void* params,
              StreamHandle stream) override;
  int resident_blocks(const Kernel& kernel, const KernelLaunch& shape) override;

  std::unique_ptr<Gemm> open_gemm(const GemmSearch& search) override {
    return make_cublaslt_gemm(*this, open_cublaslt(search),
                              [context = context_](const std::function<void()>& call) {
                                const CurrentContext current(*context);
                                call();
                              });
  }

 private:
  CuHandle record_graph(StreamHandle stream, const std::function<void()>& work);

  const DeviceInfo info_;
  const std::shared_ptr<const CudaContext> context_;
  const Driver& driver_;
};

std::size_t CudaDevice::free_memory_bytes() const {
  const CurrentContext current(*context_);
  std::size_t free = 0;
  std::size_t total = 0;
  if (const CuResult status = driver_.mem_get_info(&free, &total)) {
    throw driver_.error("cannot query free device memory", status);
  }
  return free;
}

DeviceMem CudaDevice::allocate(std::size_t bytes) {
  const CurrentContext current(*context_);
  CuDevicePtr pointer = 0;
  // The driver refuses 0 bytes; an empty buffer has an address all the same.
  if (const CuResult status = driver_.mem_alloc(&pointer, bytes == 0 ? 1 : bytes)) {
    throw driver_.error("cannot allocate device memory", status, fmt::format("bytes={}", bytes));
  }
  return {pointer, bytes, [context = context_](void* memory) {
            release_in(*context, [&](const Driver& driver) {
              driver.mem_free(reinterpret_cast<CuDevicePtr>(memory));
            });
          }};
}

void CudaDevice::copy_to_device(DevicePtr to, std::span<const std::byte> from,
                                StreamHandle stream) {
  if (from.empty()) return;
  const CurrentContext current(*context_);
  if (const CuResult status = driver_.memcpy_htod_async(to, from.data(), from.size(), stream)) {
    throw driver_.error("cannot copy to the device", status, fmt::format("bytes={}", from.size()));
  }
}

void CudaDevice::copy_to_host(std::span<std::byte> to, DevicePtr from, StreamHandle stream) {
  if (to.empty()) return;
  const CurrentContext current(*context_);
  CuResult status = driver_.memcpy_dtoh_async(to.data(), from, to.size(), stream);
  if (status == kCudaSuccess) status = driver_.stream_synchronize(stream);
  if (status != kCudaSuccess) {
    throw driver_.error("cannot copy from the device", status, fmt::format("bytes={}", to.size()));
  }
}

void CudaDevice::fill_bytes(DevicePtr to, unsigned char value, std::size_t bytes,
                            StreamHandle stream) {
  if (bytes == 0) return;
  const CurrentContext current(*context_);
  if (const CuResult status = driver_.memset_d8_async(to, value, bytes, stream)) {
    throw driver_.error("cannot fill device memory", status, fmt::format("bytes={}", bytes));
  }
}

TensorMap CudaDevice::tensor_map(const TensorMapSpec& spec) {
  validate(spec);
  if (driver_.tensor_map_encode_tiled == nullptr) {
    throw DeviceUnavailable("the CUDA driver has no tensor maps",
                            fmt::format("driver={}", info_.driver_version),
                            "install a driver for CUDA 12.0 or later");
  }
  const CurrentContext current(*context_);
  constexpr std::array<std::uint32_t, 5> kDense{1, 1, 1, 1, 1};
  TensorMap map;
  // 256-byte promotion costs 9% of the read bandwidth of an H200.
  if (const CuResult status = driver_.tensor_map_encode_tiled(
          map.bytes, driver_type(spec.type), static_cast<unsigned>(spec.rank),
          reinterpret_cast<void*>(spec.address), spec.size.data(), spec.stride_bytes.data(),
          spec.box.data(), kDense.data(), kTensorMapInterleaveNone,
          kTensorMapSwizzleNone + static_cast<int>(spec.swizzle), kTensorMapPromotion128,
          spec.fill == TensorMapFill::kNan ? kTensorMapFillNan : kTensorMapFillZero)) {
    throw driver_.error(
        "cannot encode the tensor map", status,
        fmt::format(
            "rank={} box={}", spec.rank,
            fmt::join(std::span(spec.box).first(static_cast<std::size_t>(spec.rank)), "x")));
  }
  return map;
}

Stream CudaDevice::create_stream() {
  const CurrentContext current(*context_);
  CuHandle stream = nullptr;
  if (const CuResult status = driver_.stream_create(&stream, kStreamNonBlocking)) {
    throw driver_.error("cannot create a stream", status);
  }
  return {stream, [context = context_](void* handle) {
            release_in(*context, [&](const Driver& driver) { driver.stream_destroy(handle); });
          }};
}

void CudaDevice::synchronize(StreamHandle stream) {
  const CurrentContext current(*context_);
  if (const CuResult status = driver_.stream_synchronize(stream)) {
    throw driver_.error("work on the stream failed", status);
  }
}

bool CudaDevice::is_capturing(StreamHandle stream) const {
  const CurrentContext current(*context_);
  int capture_status = kCaptureStatusNone;
  if (const CuResult status = driver_.stream_is_capturing(stream, &capture_status)) {
    throw driver_.error("cannot query the stream", status);
  }
  return capture_status != kCaptureStatusNone;
}

Event CudaDevice::create_event() {
  const CurrentContext current(*context_);
  CuHandle event = nullptr;
  if (const CuResult status = driver_.event_create(&event, 0)) {
    throw driver_.error("cannot create an event", status);
  }
  return {event, [context = context_](void* handle) {
            release_in(*context, [&](const Driver& driver) { driver.event_destroy(handle); });
          }};
}

void CudaDevice::record(const Event& event, StreamHandle stream) {
  const CurrentContext current(*context_);
  if (const CuResult status = driver_.event_record(event.get(), stream)) {
    throw driver_.error("cannot record an event", status);
  }
}

double CudaDevice::elapsed_us(const Event& begin, const Event& end) {
  const CurrentContext current(*context_);
  float milliseconds = 0;
  CuResult status = driver_.event_synchronize(end.get());
  if (status == kCudaSuccess) {
    status = driver_.event_elapsed_time(&milliseconds, begin.get(), end.get());
  }
  if (status != kCudaSuccess) throw driver_.error("cannot read the time between events", status);
  return static_cast<double>(milliseconds) * 1e3;
}

// Thread-local mode: other threads may go on allocating and loading while this one captures.
CuHandle CudaDevice::record_graph(StreamHandle stream, const std::function<void()>& work) {
  if (const CuResult status = driver_.stream_begin_capture(stream, kCaptureModeThreadLocal)) {
    throw driver_.error("cannot begin a graph capture", status);
  }
  CuHandle graph = nullptr;
  try {
    work();
  } catch (...) {  // the stream must leave capture, whatever happened
    driver_.stream_end_capture(stream, &graph);
    if (graph != nullptr) driver_.graph_destroy(graph);
    throw;
  }
  if (const CuResult status = driver_.stream_end_capture(stream, &graph)) {
    throw driver_.error("cannot end the graph capture", status);
  }
  return graph;
}

Graph CudaDevice::capture(StreamHandle stream, const std::function<void()>& work) {
  const CurrentContext current(*context_);
  const CuHandle graph = record_graph(stream, work);
  CuHandle exec = nullptr;
  const CuResult status = driver_.graph_instantiate(&exec, graph, 0);
  driver_.graph_destroy(graph);
  if (status != kCudaSuccess) throw driver_.error("cannot instantiate the graph", status);
  return {exec, [context = context_](void* handle) {
            release_in(*context, [&](const Driver& driver) { driver.graph_exec_destroy(handle); });
          }};
}

void CudaDevice::launch(const Graph& graph, StreamHandle stream) {
  const CurrentContext current(*context_);
  if (const CuResult status = driver_.graph_launch(graph.get(), stream)) {
    throw driver_.error("cannot launch the graph", status);
  }
}

Module CudaDevice::load(const Binary& binary) {
  // The driver would run an sm_80 cubin on an sm_86 device; its times are not those of sm_86 code.
  if (binary.arch != info_.arch) {
    throw InvalidArgument("the binary is for another architecture",
                          fmt::format("binary={} device={}", binary.arch, info_.arch),
                          fmt::format("compile it for {}", info_.arch));
  }
  if (binary.cubin.empty()) {
    throw InvalidArgument("the binary has no code", fmt::format("key={}", binary.key.text()));
  }
  const CurrentContext current(*context_);
  CuHandle module = nullptr;
  if (const CuResult status = driver_.module_load_data(&module, binary.cubin.data())) {
    throw driver_.error(
        "cannot load the binary", status,
        fmt::format("key={} bytes={} nvrtc={} driver={}", binary.key.text(), binary.cubin.size(),
                    binary.compiler_version, info_.driver_version));
  }
  return {module, [context = context_](void* handle) {
            release_in(*context, [&](const Driver& driver) { driver.module_unload(handle); });
          }};
}

Kernel CudaDevice::kernel(const Module& module, const std::string& symbol, int smem_bytes) {
  const CurrentContext current(*context_);
  Kernel kernel;
  if (const CuResult status =
          driver_.module_get_function(&kernel.function, module.get(), symbol.c_str())) {
    throw driver_.error("cannot find the kernel in its binary", status,
                        fmt::format("symbol={}", symbol));
  }
  CuResult status =
      driver_.func_set_attribute(kernel.function, kFunctionMaxDynamicSmem, smem_bytes);
  // Every kernel asks for the same division: an SM drains before it changes between two of them.
  constexpr int kAllSmem = 100;
  if (status == kCudaSuccess) {
    status = driver_.func_set_attribute(kernel.function, kFunctionSmemCarveout, kAllSmem);
  }
  // A request for a cluster of more than 8 CTAs is refused otherwise, and one that has no room is
  // refused all the same.
  if (status == kCudaSuccess && info_.compute_major >= 9) {
    status = driver_.func_set_attribute(kernel.function, kFunctionNonPortableClusters, 1);
  }
  // Lazy loading would otherwise move code to the device at the first launch.
  if (status == kCudaSuccess && driver_.func_load != nullptr) {
    status = driver_.func_load(kernel.function);
  }
  if (status != kCudaSuccess) {
    throw driver_.error("cannot prepare the kernel", status,
                        fmt::format("symbol={} smem_bytes={} limit={}", symbol, smem_bytes,
                                    info_.max_smem_per_block_bytes));
  }
  return kernel;
}

void CudaDevice::launch(const Kernel& kernel, const KernelLaunch& shape, const void* params,
                        StreamHandle stream) {
  const CurrentContext current(*context_);
  void* arguments[] = {const_cast<void*>(params)};  // the driver only reads them
  const auto smem_bytes = static_cast<unsigned>(shape.smem_bytes);
  CuResult status = kCudaSuccess;
  std::array<CuLaunchAttribute, 2> attributes{};
  unsigned num_attributes = 0;
  if (driver_.launch_kernel_ex != nullptr && info_.compute_major >= 9) {
    // Kernels for older architectures wait for nothing, so for them the plain order is the right
    // one.
    if (shape.programmatic) {
      attributes[num_attributes++] = {kLaunchProgrammaticSerialization, {.number = 1}};
    }
    if (shape.cluster != Dim3{}) {
      attributes[num_attributes++] = {
          kLaunchClusterDimension,
          {.cluster = {shape.cluster.x, shape.cluster.y, shape.cluster.z}}};
    }
  } else if (shape.cluster != Dim3{}) {
    throw InvalidArgument("the device has no clusters",
                          fmt::format("arch={} driver={}", info_.arch, info_.driver_version));
  }
  if (num_attributes > 0) {
    const CuLaunchConfig config{shape.grid.x,      shape.grid.y,  shape.grid.z, shape.block.x,
                                shape.block.y,     shape.block.z, smem_bytes,   stream,
                                attributes.data(), num_attributes};
    status = driver_.launch_kernel_ex(&config, kernel.function, arguments, nullptr);
  } else {
    status = driver_.launch_kernel(kernel.function, shape.grid.x, shape.grid.y, shape.grid.z,
                                   shape.block.x, shape.block.y, shape.block.z, smem_bytes, stream,
                                   arguments, nullptr);
  }
  if (status == kCudaSuccess) return;
  throw driver_.error(
      "cannot launch the kernel", status,
      fmt::format("grid={}x{}x{} block={}x{}x{} cluster={}x{}x{} smem_bytes={}", shape.grid.x,
                  shape.grid.y, shape.grid.z, shape.block.x, shape.block.y, shape.block.z,
                  shape.cluster.x, shape.cluster.y, shape.cluster.z, shape.smem_bytes));
}

int CudaDevice::resident_blocks(const Kernel& kernel, const KernelLaunch& shape) {
  const CurrentContext current(*context_);
  int num_blocks = 0;
  const auto threads = static_cast<int>(shape.block.x * shape.block.y * shape.block.z);
  if (const CuResult status = driver_.occupancy_max_active_blocks(
          &num_blocks, kernel.function, threads, static_cast<std::size_t>(shape.smem_bytes))) {
    throw driver_.error("cannot query how many blocks fit", status,
                        fmt::format("threads={} smem_bytes={}", threads, shape.smem_bytes));
  }
  return num_blocks;
}

}  // namespace

std::unique_ptr<Device> open_cuda_device(int ordinal) {
  auto driver = load_driver();
  const CuDevice device = find_device(*driver, ordinal);
  return std::make_unique<CudaDevice>(std::move(driver), device);
}

}  // namespace attune
