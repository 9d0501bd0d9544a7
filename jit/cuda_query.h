// What the driver says about itself and its devices; creates no context.
#pragma once

#include "jit/device_info.h"
#include "jit/driver.h"

namespace attune {

int count_devices(const Driver& driver);

// Device `ordinal`. Throws DeviceUnavailable when there is no such device.
CuDevice find_device(const Driver& driver, int ordinal);

DeviceInfo describe_device(const Driver& driver, CuDevice device);

// What kernels are compiled for: "sm_90a" and "sm_100a" have instructions of their own, the others
// are plain.
std::string arch_of(int compute_major, int compute_minor);

}  // namespace attune
