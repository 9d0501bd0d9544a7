#include "jit/host/host_info.h"

#include <gtest/gtest.h>

#include "jit/machine_limits.h"
#include "tests/support/temporary_folder.h"

namespace attune {
namespace {

TEST(HostInfo, ReadsNameAndMemory) {
  const TemporaryFolder root;
  root.write("proc/cpuinfo",
             "processor\t: 0\nmodel\t\t: 49\nmodel name\t: AMD EPYC 7B13 \nmodel name\t: other\n");
  root.write("proc/meminfo", "MemTotal:       24117248 kB\nMemFree: 1 kB\n");
  const DeviceInfo info = host_device_info({}, root.path());
  EXPECT_EQ(info.name, "host CPU AMD EPYC 7B13");
  EXPECT_EQ(info.memory_bytes, std::size_t{24117248} << 10);
  EXPECT_EQ(info.arch, "host");
  EXPECT_EQ(info.max_smem_per_block_bytes, 232448);
  EXPECT_EQ(info.driver_version, "");
  EXPECT_EQ(info.uuid, "");
}

TEST(HostInfo, NamesTheMachineWhereThereIsNoModel) {
  const TemporaryFolder root;
  const DeviceInfo info = host_device_info({}, root.path());
  EXPECT_TRUE(info.name.starts_with("host CPU ")) << info.name;
  EXPECT_GT(info.name.size(), std::string("host CPU ").size());
}

TEST(HostInfo, KeepsItsIdentityInParts) {
  const TemporaryFolder root;
  root.write("proc/cpuinfo", "model name : a|b\n");
  EXPECT_TRUE(host_device_info({}, root.path()).identity().starts_with("host CPU a b|host|9.0|"));
}

TEST(HostInfo, DescribesThisMachine) {
  const DeviceInfo info = host_device_info({.checks = HostChecks::kAccesses});
  EXPECT_EQ(info.arch, "host+checks");
  EXPECT_EQ(info.num_sms, machine_limits().cores);
  EXPECT_GT(info.memory_bytes, std::size_t{1} << 28);
  EXPECT_EQ(info, host_device_info({.checks = HostChecks::kAccesses}));
}

}  // namespace
}  // namespace attune
