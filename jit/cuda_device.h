// The CUDA device: the driver API, opened at run time and never linked.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "jit/device.h"

namespace attune {

struct DriverStatus {
  bool loaded = false;
  std::string library;  // path or name that was opened
  std::string version;  // "13.0"
  int num_devices = 0;
  std::string problem;  // why it is not usable: what was looked for, where, what to install; empty
                        // when fine
};
// Never throws and creates no context.
DriverStatus query_driver();

// The devices the driver sees; creates no context. Empty without a driver.
std::vector<DeviceInfo> list_devices();

// Uses the primary context of device `ordinal`, so pointers and streams of the CUDA runtime and of
// frameworks work. Throws DeviceUnavailable when there is no driver or no such device.
std::unique_ptr<Device> open_cuda_device(int ordinal);

}  // namespace attune
