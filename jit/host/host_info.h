// This machine as a device.
#pragma once

#include <filesystem>

#include "jit/device_info.h"
#include "jit/host/host_target.h"

namespace attune {

// The CPU's name, as many SMs as cores, all memory; the limits of an sm_90a GPU. Reads /proc below
// `root`, which is "/" but for tests.
DeviceInfo host_device_info(const HostTarget& target = {}, const std::filesystem::path& root = "/");

}  // namespace attune
