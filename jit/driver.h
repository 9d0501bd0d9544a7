// Entry points of the CUDA driver, found in libcuda at run time: our own declarations, no cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/error.h"

namespace attune {

using CuResult = int;    // CUresult; 0 is success
using CuDevice = int;    // CUdevice
using CuHandle = void*;  // CUcontext, CUstream, CUevent, CUmodule, CUfunction, CUgraph, CUgraphExec
using CuDevicePtr = unsigned long long;  // CUdeviceptr

// Values of the driver's ABI, under the names of cuda.h.
constexpr CuResult kCudaSuccess = 0;
constexpr unsigned kStreamNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr int kCaptureModeThreadLocal = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
constexpr int kCaptureStatusNone = 0;       // CU_STREAM_CAPTURE_STATUS_NONE
constexpr int kFunctionMaxDynamicSmem = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kFunctionSmemCarveout = 9;    // CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
constexpr int kFunctionNonPortableClusters =
    14;  // CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
constexpr int kAttributeMaxThreadsPerBlock = 1;  // CU_DEVICE_ATTRIBUTE_...
constexpr int kAttributeNumSms = 16;
constexpr int kAttributeL2Bytes = 38;
constexpr int kAttributeComputeMajor = 75;
constexpr int kAttributeComputeMinor = 76;
constexpr int kAttributeSmemPerSm = 81;
constexpr int kAttributeRegistersPerSm = 82;
constexpr int kAttributeMaxSmemPerBlockOptin = 97;

struct CuUuid {
  unsigned char bytes[16];
};

constexpr int kLaunchClusterDimension = 4;  // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
constexpr int kLaunchProgrammaticSerialization =
    6;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION

struct CuLaunchAttribute {  // CUlaunchAttribute
  int id;
  alignas(8) union {
    int number;
    struct {
      unsigned x, y, z;
    } cluster;
    char pad[64];
  } value;
};
static_assert(sizeof(CuLaunchAttribute) == 72);

struct CuLaunchConfig {  // CUlaunchConfig
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned smem_bytes;
  CuHandle stream;
  CuLaunchAttribute* attributes;
  unsigned num_attributes;
};
static_assert(sizeof(CuLaunchConfig) == 56);

// Values of cuTensorMapEncodeTiled.
constexpr int kTensorMapUint8 = 0;  // CU_TENSOR_MAP_DATA_TYPE_...
constexpr int kTensorMapFloat32 = 7;
constexpr int kTensorMapBfloat16 = 9;
constexpr int kTensorMapInterleaveNone = 0;
constexpr int kTensorMapSwizzleNone = 0;   // 1, 2 and 3 for 32, 64 and 128 bytes
constexpr int kTensorMapPromotion128 = 2;  // CU_TENSOR_MAP_L2_PROMOTION_L2_128B
constexpr int kTensorMapFillZero = 0;      // CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
constexpr int kTensorMapFillNan = 1;

// The loaded driver. Immutable and shared by everything that needs it; never unloaded, because the
// driver's own threads may still run.
struct Driver {
  std::string library;  // path of the opened library, or its name where the path is unknown

  CuResult (*init)(unsigned flags);
  CuResult (*driver_get_version)(int* version);
  CuResult (*get_error_name)(CuResult status, const char** name);
  CuResult (*device_get_count)(int* count);
  CuResult (*device_get)(CuDevice* device, int ordinal);
  CuResult (*device_get_name)(char* name, int length, CuDevice device);
  CuResult (*device_get_uuid)(CuUuid* uuid, CuDevice device);
  CuResult (*device_total_mem)(std::size_t* bytes, CuDevice device);
  CuResult (*device_get_attribute)(int* value, int attribute, CuDevice device);
  CuResult (*primary_ctx_retain)(CuHandle* context, CuDevice device);
  CuResult (*primary_ctx_release)(CuDevice device);
  CuResult (*ctx_get_current)(CuHandle* context);
  CuResult (*ctx_push_current)(CuHandle context);
  CuResult (*ctx_pop_current)(CuHandle* context);

  CuResult (*mem_get_info)(std::size_t* free, std::size_t* total);
  CuResult (*mem_alloc)(CuDevicePtr* pointer, std::size_t bytes);
  CuResult (*mem_free)(CuDevicePtr pointer);
  CuResult (*memcpy_htod_async)(CuDevicePtr to, const void* from, std::size_t bytes,
                                CuHandle stream);
  CuResult (*memcpy_dtoh_async)(void* to, CuDevicePtr from, std::size_t bytes, CuHandle stream);
  CuResult (*memset_d8_async)(CuDevicePtr to, unsigned char value, std::size_t bytes,
                              CuHandle stream);

  CuResult (*stream_create)(CuHandle* stream, unsigned flags);
  CuResult (*stream_destroy)(CuHandle stream);
  CuResult (*stream_synchronize)(CuHandle stream);
  CuResult (*stream_is_capturing)(CuHandle stream, int* status);
  CuResult (*stream_begin_capture)(CuHandle stream, int mode);
  CuResult (*stream_end_capture)(CuHandle stream, CuHandle* graph);
  CuResult (*event_create)(CuHandle* event, unsigned flags);
  CuResult (*event_destroy)(CuHandle event);
  CuResult (*event_record)(CuHandle event, CuHandle stream);
  CuResult (*event_synchronize)(CuHandle event);
  CuResult (*event_elapsed_time)(float* milliseconds, CuHandle begin, CuHandle end);
  CuResult (*graph_instantiate)(CuHandle* exec, CuHandle graph, unsigned long long flags);
  CuResult (*graph_exec_destroy)(CuHandle exec);
  CuResult (*graph_destroy)(CuHandle graph);
  CuResult (*graph_launch)(CuHandle exec, CuHandle stream);

  CuResult (*module_load_data)(CuHandle* module, const void* image);
  CuResult (*module_unload)(CuHandle module);
  CuResult (*module_get_function)(CuHandle* function, CuHandle module, const char* name);
  CuResult (*func_set_attribute)(CuHandle function, int attribute, int value);
  CuResult (*func_load)(CuHandle function);  // since CUDA 12.4; may be null
  CuResult (*launch_kernel)(CuHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z,
                            unsigned smem_bytes, CuHandle stream, void** params, void** extra);
  CuResult (*launch_kernel_ex)(const CuLaunchConfig* config, CuHandle function, void** params,
                               void** extra);  // since CUDA 11.8; may be null
  CuResult (*tensor_map_encode_tiled)(void* map, int type, unsigned rank, void* address,
                                      const std::uint64_t* size, const std::uint64_t* stride_bytes,
                                      const std::uint32_t* box, const std::uint32_t* element_stride,
                                      int interleave, int swizzle, int promotion,
                                      int fill);  // since CUDA 12.0; may be null
  CuResult (*occupancy_max_active_blocks)(int* num_blocks, CuHandle function, int block_size,
                                          std::size_t smem_bytes);

  // "CUDA_ERROR_OUT_OF_MEMORY", or "CUDA error 2" when the driver has no name for it.
  std::string name_of(CuResult status) const;
  // What `status` means for the caller of attune, with advice where there is some.
  CudaError error(std::string_view what_failed, CuResult status,
                  std::string_view values = {}) const;
};

// Opens the driver and binds its entry points; cuInit has succeeded. Opening it again is cheap.
// Throws DeviceUnavailable that says what was looked for, where, and what to install.
std::shared_ptr<const Driver> load_driver();

// "13.0" from 13000.
std::string cuda_version_text(int version);

}  // namespace attune
