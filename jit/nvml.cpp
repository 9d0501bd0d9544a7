#include "jit/nvml.h"

#include <chrono>
#include <utility>

#include "jit/shared_library.h"

namespace attune {
namespace {

constexpr const char* kPlaces[] = {"libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
                                   "/usr/lib/wsl/lib/libnvidia-ml.so.1"};

// Listing processes takes longer than a sample; nobody comes and goes that fast.
constexpr std::chrono::milliseconds kProcessesFor{500};

unsigned throttle_of(unsigned long long reasons) {
  unsigned throttle = 0;
  if ((reasons & (kNvmlSwPowerCap | kNvmlHwPowerBrake)) != 0) throttle |= kThrottlePower;
  if ((reasons & (kNvmlSwThermal | kNvmlHwThermal)) != 0) throttle |= kThrottleThermal;
  // The hardware's slowdown is named by its cause as well, where that is known.
  if ((reasons & kNvmlHwSlowdown) != 0 && throttle == 0) throttle |= kThrottleOther;
  return throttle;
}

class NvmlMonitor : public DeviceMonitor {
 public:
  // A MIG instance has processes of its own, but the clocks of its GPU.
  NvmlMonitor(std::shared_ptr<const Nvml> nvml, NvmlDevice device)
      : nvml_(std::move(nvml)), device_(device), clocked_(device) {
    NvmlDevice parent = nullptr;
    if (nvml_->device_of_mig != nullptr && nvml_->device_of_mig(device, &parent) == kNvmlSuccess &&
        parent != nullptr) {
      clocked_ = parent;
    }
  }

  DeviceState read() override {
    DeviceState state;
    state.sm_clock_mhz = clock(kNvmlClockSm);
    state.memory_clock_mhz = clock(kNvmlClockMemory);
    unsigned long long reasons = 0;
    if (nvml_->throttle_reasons != nullptr &&
        nvml_->throttle_reasons(clocked_, &reasons) == kNvmlSuccess) {
      state.throttle = throttle_of(reasons);
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= processes_until_) {
      processes_ = processes();
      processes_until_ = now + kProcessesFor;
    }
    state.processes = processes_;
    return state;
  }

 private:
  int clock(int type) const {
    unsigned mhz = 0;
    if (nvml_->clock == nullptr || nvml_->clock(clocked_, type, &mhz) != kNvmlSuccess) return 0;
    return static_cast<int>(mhz);
  }

  std::optional<std::vector<unsigned>> processes() const {
    if (nvml_->compute_processes == nullptr) return std::nullopt;
    std::vector<NvmlProcess> listed(16);
    for (int attempt = 0; attempt < 3; ++attempt) {  // they may grow in number meanwhile
      auto count = static_cast<unsigned>(listed.size());
      const NvmlResult status = nvml_->compute_processes(device_, &count, listed.data());
      if (status == kNvmlInsufficientSize) {
        listed.resize(2 * static_cast<std::size_t>(count) + 16);
        continue;
      }
      if (status != kNvmlSuccess) return std::nullopt;
      std::vector<unsigned> pids;
      for (unsigned i = 0; i < count; ++i) pids.push_back(listed[i].pid);
      return pids;
    }
    return std::nullopt;
  }

  std::shared_ptr<const Nvml> nvml_;
  NvmlDevice device_;   // where processes are listed
  NvmlDevice clocked_;  // whose clocks count
  std::optional<std::vector<unsigned>> processes_;
  std::chrono::steady_clock::time_point processes_until_{};
};

}  // namespace

std::shared_ptr<const Nvml> load_nvml() {
  SharedLibrary library;
  for (const char* place : kPlaces) {
    library = open_shared_library(place);
    if (library.handle != nullptr) break;
  }
  if (library.handle == nullptr) return nullptr;
  auto nvml = std::make_shared<Nvml>();
  find_symbol(library, "nvmlInit_v2", &nvml->init);
  find_symbol(library, "nvmlDeviceGetHandleByUUID", &nvml->device_by_uuid);
  find_symbol(library, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", &nvml->device_of_mig);
  find_symbol(library, "nvmlDeviceGetClockInfo", &nvml->clock);
  find_symbol(library, "nvmlDeviceGetCurrentClocksEventReasons", &nvml->throttle_reasons);
  if (nvml->throttle_reasons == nullptr) {  // its name before driver 535
    find_symbol(library, "nvmlDeviceGetCurrentClocksThrottleReasons", &nvml->throttle_reasons);
  }
  find_symbol(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml->compute_processes);
  if (nvml->compute_processes == nullptr) {
    find_symbol(library, "nvmlDeviceGetComputeRunningProcesses_v2", &nvml->compute_processes);
  }
  if (nvml->init == nullptr || nvml->device_by_uuid == nullptr) return nullptr;
  return nvml;
}

std::unique_ptr<DeviceMonitor> open_nvml_monitor(std::shared_ptr<const Nvml> nvml,
                                                 const std::string& uuid) {
  NvmlDevice device = nullptr;
  if (nvml->init() != kNvmlSuccess) return nullptr;
  if (nvml->device_by_uuid(uuid.c_str(), &device) != kNvmlSuccess) return nullptr;
  return std::make_unique<NvmlMonitor>(std::move(nvml), device);
}

}  // namespace attune
