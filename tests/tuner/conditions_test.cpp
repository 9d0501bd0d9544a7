#include "tuner/conditions.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace attune {
namespace {

// Says what the test told it.
class FakeMonitor : public DeviceMonitor {
 public:
  DeviceState read() override { return state; }
  DeviceState state;
};

const auto kSelf = static_cast<unsigned>(getpid());

TEST(ConditionsBetween, KeepTheLowerClockAndEveryReason) {
  const DeviceState before{
      .sm_clock_mhz = 1980, .memory_clock_mhz = 3201, .throttle = 0, .processes = {}};
  const DeviceState after{
      .sm_clock_mhz = 1965, .memory_clock_mhz = 0, .throttle = kThrottlePower, .processes = {}};
  const Conditions conditions = conditions_between(before, after, 0);
  EXPECT_EQ(conditions.sm_clock_mhz, 1965);
  EXPECT_EQ(conditions.memory_clock_mhz, 3201);
  EXPECT_EQ(conditions.throttle, kThrottlePower);
  EXPECT_TRUE(conditions.steady);
  EXPECT_FALSE(conditions.provisional());
}

TEST(ConditionsBetween, AreNotSteadyWhenAClockJumps) {
  const DeviceState high{
      .sm_clock_mhz = 1980, .memory_clock_mhz = 3201, .throttle = 0, .processes = {}};
  DeviceState low = high;
  low.sm_clock_mhz = 1800;
  EXPECT_FALSE(conditions_between(high, low, 0).steady);
  EXPECT_FALSE(conditions_between(low, high, 0).steady);
  EXPECT_TRUE(conditions_between(low, high, 0).provisional());
  low.sm_clock_mhz = 0;  // not known
  EXPECT_TRUE(conditions_between(high, low, 0).steady);
}

TEST(Merged, KeepsTheWorstOfBoth) {
  const Conditions a{1980, 0, kThrottlePower, 0, true}, b{1900, 3201, kThrottleThermal, 2, false};
  EXPECT_EQ(merged(a, b), (Conditions{1900, 3201, kThrottlePower | kThrottleThermal, 2, false}));
}

TEST(Watch, CountsTheProcessesOfOthers) {
  FakeMonitor monitor;
  Watch watch(monitor);
  const DeviceState before = watch.look();
  EXPECT_EQ(watch.since(before).foreign_processes, 0);  // not known
  monitor.state.processes = {kSelf};
  EXPECT_EQ(watch.since(before).foreign_processes, 0);
  monitor.state.processes = {kSelf, 1};  // init is nobody's child
  EXPECT_EQ(watch.since(before).foreign_processes, 1);
  EXPECT_TRUE(watch.since(before).provisional());
  monitor.state.processes = {kSelf};
  EXPECT_EQ(watch.since(before).foreign_processes, 0);
}

}  // namespace
}  // namespace attune
