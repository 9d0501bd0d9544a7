#include "jit/machine_limits.h"

#include <gtest/gtest.h>

#include "jit/compile_pool.h"
#include "tests/support/temporary_folder.h"

namespace attune {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// A machine with 8000 MiB available.
void write_meminfo(const TemporaryFolder& root) {
  root.write("proc/meminfo",
             "MemTotal:       16384000 kB\nMemFree:         1024000 kB\n"
             "MemAvailable:    8192000 kB\n");
}

TEST(MachineLimits, TakesAvailableMemoryWithoutAGroup) {
  const TemporaryFolder root;
  write_meminfo(root);
  const MachineLimits limits = machine_limits(root.path());
  EXPECT_EQ(limits.free_bytes, 8000 * kMiB);
  EXPECT_GE(limits.cores, 1);
}

TEST(MachineLimits, RespectsTheMemoryLimitOfItsGroup) {
  const TemporaryFolder root;
  write_meminfo(root);
  root.write("sys/fs/cgroup/memory.max", "2147483648\n");
  root.write("sys/fs/cgroup/memory.current", "1073741824\n");
  root.write("sys/fs/cgroup/memory.stat", "anon 1\ninactive_file 536870912\nactive_file 7\n");
  EXPECT_EQ(machine_limits(root.path()).free_bytes, 1536 * kMiB);
}

TEST(MachineLimits, RespectsTheLimitsOfTheGroupsAroundItsOwn) {
  const TemporaryFolder root;
  write_meminfo(root);
  root.write("proc/self/cgroup", "0::/pod/container\n");
  root.write("sys/fs/cgroup/memory.max", "max\n");
  root.write("sys/fs/cgroup/pod/memory.max", "1073741824\n");
  root.write("sys/fs/cgroup/pod/memory.current", "1073741824\n");
  root.write("sys/fs/cgroup/pod/container/memory.max", "max\n");
  EXPECT_EQ(machine_limits(root.path()).free_bytes, 0u);
}

TEST(MachineLimits, ReadsVersionOneGroups) {
  const TemporaryFolder root;
  write_meminfo(root);
  root.write("proc/self/cgroup", "4:memory:/docker/1f\n3:cpu,cpuacct:/docker/1f\n");
  root.write("sys/fs/cgroup/memory/docker/1f/memory.limit_in_bytes", "1048576000\n");
  root.write("sys/fs/cgroup/memory/docker/1f/memory.usage_in_bytes", "524288000\n");
  root.write("sys/fs/cgroup/cpu/docker/1f/cpu.cfs_quota_us", "50000\n");
  root.write("sys/fs/cgroup/cpu/docker/1f/cpu.cfs_period_us", "100000\n");
  const MachineLimits limits = machine_limits(root.path());
  EXPECT_EQ(limits.free_bytes, 500 * kMiB);
  EXPECT_EQ(limits.cores, 1);
}

TEST(MachineLimits, RespectsACpuQuota) {
  const TemporaryFolder root;
  root.write("sys/fs/cgroup/cpu.max", "100000 100000\n");
  EXPECT_EQ(machine_limits(root.path()).cores, 1);
}

TEST(MachineLimits, HasOneCoreWhenNothingCanBeRead) {
  const TemporaryFolder root;
  const MachineLimits limits = machine_limits(root.path());
  EXPECT_GE(limits.cores, 1);
  EXPECT_EQ(limits.free_bytes, 0u);
}

TEST(WorkerCount, IsAtLeastOne) {
  EXPECT_EQ(worker_count(0, 0), 1);
  EXPECT_EQ(worker_count(-4, 64000 * kMiB), 1);
  EXPECT_EQ(worker_count(16, 100 * kMiB), 1);
}

TEST(WorkerCount, FollowsCoresAndMemory) {
  EXPECT_EQ(worker_count(16, 64000 * kMiB), 16);
  EXPECT_EQ(worker_count(16, 2000 * kMiB), 5);
  EXPECT_EQ(worker_count(2, 2000 * kMiB), 2);
}

}  // namespace
}  // namespace attune
