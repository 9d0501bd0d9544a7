// What a GPU does beside our kernels: its clocks, why they are held back, and who else runs on it.
// From NVML, which is opened at run time and may be absent.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jit/device_info.h"

namespace attune {

// Why a clock is below what it could be; bits of DeviceState::throttle.
constexpr unsigned kThrottlePower = 1;    // the power limit, or a brake on power
constexpr unsigned kThrottleThermal = 2;  // temperature
constexpr unsigned kThrottleOther = 4;    // the board slows down for another reason

struct DeviceState {
  int sm_clock_mhz = 0;  // 0: not known
  int memory_clock_mhz = 0;
  unsigned throttle = 0;
  // Processes with a context on the device, as the driver numbers them; empty when not known.
  std::optional<std::vector<unsigned>> processes;
};

class DeviceMonitor {
 public:
  virtual ~DeviceMonitor() = default;
  // Never throws; what cannot be read is not known.
  virtual DeviceState read() = 0;
};

// The monitor of the GPU with this UUID, whatever its number is. One that knows nothing where there
// is no NVML, no UUID (the host device) or no such GPU.
std::unique_ptr<DeviceMonitor> open_device_monitor(const DeviceInfo& device);

// "power+thermal"; empty without a reason.
std::string throttle_text(unsigned throttle);

// This process and those that belong to it: its descendants, and where a program of attune from the
// same folder has started it, that one and its descendants.
std::vector<unsigned> own_processes();

// How many of `listed` are somebody else's. In a container the driver may number processes as the
// machine does and not as the container: then this process, which has a context, is not found under
// its own number `self`, and as many as `own` has are taken for ours.
int count_foreign(const std::vector<unsigned>& listed, const std::vector<unsigned>& own,
                  unsigned self);

}  // namespace attune
