#include "jit/driver.h"

#include <fmt/format.h>

#include "jit/shared_library.h"

namespace attune {
namespace {

constexpr std::string_view kInstallDriver =
    "install the NVIDIA driver (in a container: start it with --gpus all or its equivalent)";

// By the loader's rules; then where Kubernetes nodes and WSL put it outside of them.
constexpr const char* kPlaces[] = {"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1",
                                   "/usr/lib/wsl/lib/libcuda.so.1"};

// Looks symbols up in the driver. A function that changed its ABI is exported under a name per
// version: the one that the declaration in driver.h describes is asked for.
class Binder {
 public:
  explicit Binder(const SharedLibrary& library) : library_(library) {}

  template <typename Function>
  void operator()(const char* symbol, Function** function) {
    find_symbol(library_, symbol, function);
    if (*function != nullptr) return;
    throw DeviceUnavailable("the CUDA driver is too old",
                            fmt::format("library={} missing={}", library_.path, symbol),
                            "install a driver for CUDA 12.0 or later");
  }

  template <typename Function>
  void optional(const char* symbol, Function** function) {
    find_symbol(library_, symbol, function);
  }

 private:
  const SharedLibrary& library_;
};

void bind_devices(Binder& bind, Driver* driver) {
  bind("cuInit", &driver->init);
  bind("cuDriverGetVersion", &driver->driver_get_version);
  bind("cuGetErrorName", &driver->get_error_name);
  bind("cuDeviceGetCount", &driver->device_get_count);
  bind("cuDeviceGet", &driver->device_get);
  bind("cuDeviceGetName", &driver->device_get_name);
  bind("cuDeviceGetUuid_v2", &driver->device_get_uuid);
  bind("cuDeviceTotalMem_v2", &driver->device_total_mem);
  bind("cuDeviceGetAttribute", &driver->device_get_attribute);
  bind("cuDevicePrimaryCtxRetain", &driver->primary_ctx_retain);
  bind("cuDevicePrimaryCtxRelease_v2", &driver->primary_ctx_release);
  bind("cuCtxGetCurrent", &driver->ctx_get_current);
  bind("cuCtxPushCurrent_v2", &driver->ctx_push_current);
  bind("cuCtxPopCurrent_v2", &driver->ctx_pop_current);
  bind("cuMemGetInfo_v2", &driver->mem_get_info);
  bind("cuMemAlloc_v2", &driver->mem_alloc);
  bind("cuMemFree_v2", &driver->mem_free);
  bind("cuMemcpyHtoDAsync_v2", &driver->memcpy_htod_async);
  bind("cuMemcpyDtoHAsync_v2", &driver->memcpy_dtoh_async);
  bind("cuMemsetD8Async", &driver->memset_d8_async);
}

void bind_work(Binder& bind, Driver* driver) {
  bind("cuStreamCreate", &driver->stream_create);
  bind("cuStreamDestroy_v2", &driver->stream_destroy);
  bind("cuStreamSynchronize", &driver->stream_synchronize);
  bind("cuStreamIsCapturing", &driver->stream_is_capturing);
  bind("cuStreamBeginCapture_v2", &driver->stream_begin_capture);
  bind("cuStreamEndCapture", &driver->stream_end_capture);
  bind("cuEventCreate", &driver->event_create);
  bind("cuEventDestroy_v2", &driver->event_destroy);
  bind("cuEventRecord", &driver->event_record);
  bind("cuEventSynchronize", &driver->event_synchronize);
  bind("cuEventElapsedTime", &driver->event_elapsed_time);
  bind("cuGraphInstantiateWithFlags", &driver->graph_instantiate);
  bind("cuGraphExecDestroy", &driver->graph_exec_destroy);
  bind("cuGraphDestroy", &driver->graph_destroy);
  bind("cuGraphLaunch", &driver->graph_launch);
  bind("cuModuleLoadData", &driver->module_load_data);
  bind("cuModuleUnload", &driver->module_unload);
  bind("cuModuleGetFunction", &driver->module_get_function);
  bind("cuFuncSetAttribute", &driver->func_set_attribute);
  bind.optional("cuFuncLoad", &driver->func_load);
  bind("cuLaunchKernel", &driver->launch_kernel);
  bind.optional("cuLaunchKernelEx", &driver->launch_kernel_ex);
  bind.optional("cuTensorMapEncodeTiled", &driver->tensor_map_encode_tiled);
  bind("cuOccupancyMaxActiveBlocksPerMultiprocessor", &driver->occupancy_max_active_blocks);
}

std::string_view advice_for(CuResult status) {
  switch (status) {
    case 2:
      return "free device memory, or use a device with more";
    case 46:
      return "another process uses the GPU exclusively";
    case 4:
      return "the driver is shutting down: destroy attune objects before exit";
    case 34:
      return "this libcuda is the toolkit's link stub: put the driver's own before it";
    case 100:
      return "no GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES";
    case 101:
      return "choose one of the devices that attune doctor lists";
    case 200:
    case 209:
      return "the binary does not fit this GPU: compile it for its architecture";
    case 201:
    case 400:
      return "pass a stream of this device's primary context";
    case 700:
    case 702:
    case 714:
    case 715:
    case 716:
    case 717:
    case 718:
    case 719:
      return "the CUDA context is lost: restart the process";
    case 701:
      return "registers x threads or shared memory exceed what an SM has";
    case 802:
    case 803:
    case 804:
    case 35:
      return "install a driver that fits this GPU and system";
    case 900:
    case 901:
    case 906:
      return "this call cannot be captured, nor can the default stream";
    default:
      return {};
  }
}

}  // namespace

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string Driver::name_of(CuResult status) const {
  const char* name = nullptr;
  if (get_error_name(status, &name) == kCudaSuccess && name != nullptr) return name;
  return fmt::format("CUDA error {}", status);
}

CudaError Driver::error(std::string_view what_failed, CuResult status,
                        std::string_view values) const {
  return {what_failed, status, name_of(status), values, advice_for(status)};
}

std::shared_ptr<const Driver> load_driver() {
  SharedLibrary library;
  std::string looked_at;
  for (const char* place : kPlaces) {
    library = open_shared_library(place);
    if (library.handle != nullptr) break;
    looked_at += fmt::format("{}{}", looked_at.empty() ? "" : ", ", library.problem);
  }
  if (library.handle == nullptr) {
    throw DeviceUnavailable("no CUDA driver found", fmt::format("looked for {}", looked_at),
                            kInstallDriver);
  }
  auto driver = std::make_shared<Driver>();
  driver->library = library.path;
  Binder bind(library);
  bind_devices(bind, driver.get());
  bind_work(bind, driver.get());
  if (const CuResult status = driver->init(0); status != kCudaSuccess) {
    const std::string_view advice = advice_for(status);
    throw DeviceUnavailable(
        "the CUDA driver does not start",
        fmt::format("library={} status={} {}", driver->library, status, driver->name_of(status)),
        advice.empty() ? kInstallDriver : advice);
  }
  return driver;
}

}  // namespace attune
