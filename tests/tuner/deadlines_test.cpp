#include "tuner/deadlines.h"

#include <gtest/gtest.h>

#include "jit/host/host_info.h"
#include "tests/support/fake_device.h"

namespace attune {
namespace {

const Problem kLong = Problem::parse("decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16");

TEST(Deadlines, AHangOnAGpuCostsSecondsNotMinutes) {
  const DeviceInfo gpu = fake_device_info();
  EXPECT_LT(verify_deadline_s(gpu, 1e9), 15);
  EXPECT_LT(time_deadline_s(gpu, kLong, 1024, {}), 15);
  EXPECT_LT(time_deadline_s(gpu, kLong, 131072, {}), 60);
}

TEST(Deadlines, LeaveAHundredTimesWhatTheWorkTakes) {
  const DeviceInfo gpu = fake_device_info();
  constexpr double kReadBytesPerS = 1e12;  // a quarter of the real number
  for (const int kv_len : {1, 4096, 131072}) {
    const double launch_s = problem_bytes(kLong, kv_len) / kReadBytesPerS;
    const TimerOptions options;
    EXPECT_GT(time_deadline_s(gpu, kLong, kv_len, options),
              50 * options.max_samples * launch_s + kGpuBase_s);
  }
}

TEST(Deadlines, GrowWithTheWork) {
  for (const DeviceInfo& device : {fake_device_info(), host_device_info()}) {
    EXPECT_LT(verify_deadline_s(device, 1e9), verify_deadline_s(device, 1e12));
    EXPECT_LT(time_deadline_s(device, kLong, 1024, {}), time_deadline_s(device, kLong, 131072, {}));
    EXPECT_LE(time_deadline_s(device, kLong, 4096, {.min_samples = 1, .max_samples = 1}),
              time_deadline_s(device, kLong, 4096, {}));
  }
}

TEST(Deadlines, AreLongerOnTheHostDevice) {
  EXPECT_GT(verify_deadline_s(host_device_info(), 1e7), verify_deadline_s(fake_device_info(), 1e7));
}

}  // namespace
}  // namespace attune
