// Entry points of NVML, found in libnvidia-ml at run time: our own declarations, no nvml.h.
#pragma once

#include <memory>
#include <string>

#include "jit/device_monitor.h"

namespace attune {

using NvmlResult = int;    // nvmlReturn_t; 0 is success
using NvmlDevice = void*;  // nvmlDevice_t
constexpr NvmlResult kNvmlSuccess = 0;
constexpr NvmlResult kNvmlInsufficientSize = 7;  // NVML_ERROR_INSUFFICIENT_SIZE
constexpr int kNvmlClockSm = 1;                  // NVML_CLOCK_SM
constexpr int kNvmlClockMemory = 2;              // NVML_CLOCK_MEM

// Bits of nvmlDeviceGetCurrentClocksEventReasons.
constexpr unsigned long long kNvmlSwPowerCap = 0x4, kNvmlHwSlowdown = 0x8, kNvmlSwThermal = 0x20,
                             kNvmlHwThermal = 0x40, kNvmlHwPowerBrake = 0x80;

struct NvmlProcess {  // nvmlProcessInfo_t, since version 2 of the call
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};
static_assert(sizeof(NvmlProcess) == 24);

// Any of them may be null, except the first two: older versions lack them.
struct Nvml {
  NvmlResult (*init)() = nullptr;
  NvmlResult (*device_by_uuid)(const char* uuid, NvmlDevice* device) = nullptr;
  NvmlResult (*device_of_mig)(NvmlDevice mig, NvmlDevice* device) = nullptr;
  NvmlResult (*clock)(NvmlDevice device, int type, unsigned* mhz) = nullptr;
  NvmlResult (*throttle_reasons)(NvmlDevice device, unsigned long long* reasons) = nullptr;
  NvmlResult (*compute_processes)(NvmlDevice device, unsigned* count,
                                  NvmlProcess* processes) = nullptr;
};

// Opens the library; it is never unloaded. nullptr when there is none.
std::shared_ptr<const Nvml> load_nvml();

// nullptr when NVML does not start or has no device of this UUID.
std::unique_ptr<DeviceMonitor> open_nvml_monitor(std::shared_ptr<const Nvml> nvml,
                                                 const std::string& uuid);

}  // namespace attune
