#include "jit/device_monitor.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "jit/nvml.h"

namespace attune {
namespace {

// What the made-up NVML below answers. Its functions are C functions, hence a global.
struct FakeNvml {
  NvmlResult init = kNvmlSuccess;
  std::string uuid = "GPU-1";
  bool is_mig = false;
  unsigned sm_mhz = 1980;
  unsigned long long reasons = 0;
  std::vector<unsigned> pids;
  int num_listings = 0;
} fake;
int gpu, parent_gpu;  // handles

Nvml make_nvml() {
  fake = {};
  Nvml nvml;
  nvml.init = [] { return fake.init; };
  nvml.device_by_uuid = [](const char* uuid, NvmlDevice* device) {
    if (fake.uuid != uuid) return 6;  // NVML_ERROR_NOT_FOUND
    *device = &gpu;
    return kNvmlSuccess;
  };
  nvml.device_of_mig = [](NvmlDevice, NvmlDevice* device) {
    if (!fake.is_mig) return 2;
    *device = &parent_gpu;
    return kNvmlSuccess;
  };
  nvml.clock = [](NvmlDevice device, int type, unsigned* mhz) {
    if (fake.is_mig && device != &parent_gpu) return 3;  // NVML_ERROR_NOT_SUPPORTED
    *mhz = type == kNvmlClockSm ? fake.sm_mhz : 3201;
    return kNvmlSuccess;
  };
  nvml.throttle_reasons = [](NvmlDevice, unsigned long long* reasons) {
    *reasons = fake.reasons;
    return kNvmlSuccess;
  };
  nvml.compute_processes = [](NvmlDevice device, unsigned* count, NvmlProcess* processes) {
    if (device != &gpu) return 3;
    ++fake.num_listings;
    const auto number = static_cast<unsigned>(fake.pids.size());
    const bool fits = number <= *count;
    *count = number;
    if (!fits) return kNvmlInsufficientSize;
    for (unsigned i = 0; i < number; ++i) processes[i].pid = fake.pids[i];
    return kNvmlSuccess;
  };
  return nvml;
}

std::unique_ptr<DeviceMonitor> open(const Nvml& nvml, const std::string& uuid = "GPU-1") {
  return open_nvml_monitor(std::make_shared<Nvml>(nvml), uuid);
}

TEST(NvmlMonitor, FindsItsDeviceByUuid) {
  const Nvml nvml = make_nvml();
  EXPECT_NE(open(nvml, "GPU-1"), nullptr);
  EXPECT_EQ(open(nvml, "GPU-2"), nullptr);
  fake.init = 9;
  EXPECT_EQ(open(nvml), nullptr);
}

TEST(NvmlMonitor, ReadsClocksReasonsAndProcesses) {
  const auto monitor = open(make_nvml());
  fake.pids = {17, 4};
  fake.reasons = kNvmlSwPowerCap | kNvmlHwThermal | 1;  // 1: idle
  const DeviceState state = monitor->read();
  EXPECT_EQ(state.sm_clock_mhz, 1980);
  EXPECT_EQ(state.memory_clock_mhz, 3201);
  EXPECT_EQ(throttle_text(state.throttle), "power+thermal");
  EXPECT_EQ(state.processes, (std::vector<unsigned>{17, 4}));
}

TEST(NvmlMonitor, TakesClocksFromTheGpuOfAMigInstance) {
  const Nvml nvml = make_nvml();
  fake.is_mig = true;
  fake.pids = {17};
  const DeviceState state = open(nvml)->read();
  EXPECT_EQ(state.sm_clock_mhz, 1980);
  EXPECT_EQ(state.processes, std::vector<unsigned>{17});
}

TEST(NvmlMonitor, AsksAgainWhenThereAreMoreProcessesThanRoom) {
  const auto monitor = open(make_nvml());
  for (unsigned pid = 1; pid <= 40; ++pid) fake.pids.push_back(pid);
  EXPECT_EQ(monitor->read().processes->size(), 40u);
  const int num_listings = fake.num_listings;
  monitor->read();
  EXPECT_EQ(fake.num_listings, num_listings) << "once in a while is enough";
}

TEST(NvmlMonitor, KnowsNothingOfWhatALibraryLacks) {
  Nvml nvml = make_nvml();
  nvml.device_of_mig = nullptr;
  nvml.clock = nullptr;
  nvml.throttle_reasons = nullptr;
  nvml.compute_processes = nullptr;
  const DeviceState state = open(nvml)->read();
  EXPECT_EQ(state.sm_clock_mhz, 0);
  EXPECT_EQ(state.throttle, 0u);
  EXPECT_FALSE(state.processes);
}

TEST(DeviceMonitor, IsBlindWithoutAGpuOfThatUuid) {
  DeviceInfo device;
  EXPECT_EQ(open_device_monitor(device)->read().sm_clock_mhz, 0);
  device.uuid = "GPU-00000000-0000-0000-0000-000000000000";
  EXPECT_FALSE(open_device_monitor(device)->read().processes);
}

TEST(ThrottleText, NamesEveryReason) {
  EXPECT_EQ(throttle_text(0), "");
  EXPECT_EQ(throttle_text(kThrottleOther), "slowdown");
}

TEST(CountForeign, LeavesOutOurOwn) {
  EXPECT_EQ(count_foreign({10, 11}, {10, 11, 12}, 10), 0);
  EXPECT_EQ(count_foreign({10, 99, 98}, {10, 11}, 10), 2);
  EXPECT_EQ(count_foreign({}, {10}, 10), 0);
}

TEST(CountForeign, GoesByNumbersWhereTheDriverCountsOtherwise) {
  EXPECT_EQ(count_foreign({70000}, {10}, 10), 0);
  EXPECT_EQ(count_foreign({70000, 70001, 70002}, {10, 11}, 10), 1);
}

bool has(const std::vector<unsigned>& pids, pid_t pid) {
  return std::find(pids.begin(), pids.end(), static_cast<unsigned>(pid)) != pids.end();
}

TEST(OwnProcesses, AreThisOneAndWhatItStarted) {
  int wait_pipe[2];
  ASSERT_EQ(pipe(wait_pipe), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    close(wait_pipe[1]);
    _exit(read(wait_pipe[0], &byte, 1) == 0 ? 0 : 1);
  }
  const auto own = own_processes();
  EXPECT_TRUE(has(own, getpid()));
  EXPECT_TRUE(has(own, child));
  EXPECT_FALSE(has(own, getppid())) << "no program of attune";
  EXPECT_FALSE(has(own, 1));
  close(wait_pipe[0]);
  close(wait_pipe[1]);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace attune
