#include "jit/machine_limits.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "common/text.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

// The whole file; empty when it cannot be read.
std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return file ? text.str() : std::string();
}

// The number at the front of a file; none for "max".
std::optional<std::int64_t> number_in(const fs::path& path) {
  std::istringstream text(read(path));
  std::string word;
  text >> word;
  return parse_int(word);
}

// The number behind a key, as in "MemAvailable:   100 kB" and "inactive_file 100".
std::int64_t value_of(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  std::string word;
  while (lines >> word) {
    if (word == key && lines >> word) return parse_int(word).value_or(0);
  }
  return 0;
}

// The group of this process below /sys/fs/cgroup for a controller ("" is version 2); "/" when the
// process sees its group as the root, as in most containers.
fs::path group_of(const fs::path& root, const std::string& controller) {
  std::istringstream lines(read(root / "proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {  // "0::/user.slice", "4:memory:/docker/1f"
    const auto parts = split(line, ':');
    if (parts.size() == 3 && parts[1] == controller) return fs::path(parts[2]).relative_path();
  }
  return {};
}

// `folder` of the group and of every group around it: the tightest limit holds.
std::vector<fs::path> group_folders(const fs::path& mount, fs::path group) {
  std::vector<fs::path> folders = {mount};
  for (; !group.empty(); group = group.parent_path()) folders.push_back(mount / group);
  return folders;
}

// Memory that a group's limit leaves; page cache that can be dropped counts as free.
void apply_memory_limit(const fs::path& folder, const char* limit, const char* usage,
                        const char* cache_key, std::size_t* free_bytes) {
  const auto max = number_in(folder / limit);
  const auto used = number_in(folder / usage);
  if (!max || !used) return;
  const std::int64_t cache = value_of(read(folder / "memory.stat"), cache_key);
  const std::int64_t left = std::max<std::int64_t>(0, *max - *used + cache);
  *free_bytes = std::min(*free_bytes, static_cast<std::size_t>(left));
}

std::size_t free_memory(const fs::path& root) {
  const std::int64_t available_kib = value_of(read(root / "proc/meminfo"), "MemAvailable:");
  auto free_bytes = static_cast<std::size_t>(available_kib) * 1024;
  for (const fs::path& folder : group_folders(root / "sys/fs/cgroup", group_of(root, ""))) {
    apply_memory_limit(folder, "memory.max", "memory.current", "inactive_file", &free_bytes);
  }
  for (const fs::path& folder :
       group_folders(root / "sys/fs/cgroup/memory", group_of(root, "memory"))) {
    apply_memory_limit(folder, "memory.limit_in_bytes", "memory.usage_in_bytes",
                       "total_inactive_file", &free_bytes);
  }
  return free_bytes;
}

int affine_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

// Cores that a group's CPU quota amounts to, rounded up; 0 without a quota.
int quota_cores(std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return 0;
  return static_cast<int>((*quota + *period - 1) / *period);
}

int usable_cores(const fs::path& root) {
  int cores = std::max(1, affine_cores());
  const auto limit_to = [&](int quota) {
    if (quota > 0) cores = std::min(cores, quota);
  };
  for (const fs::path& folder : group_folders(root / "sys/fs/cgroup", group_of(root, ""))) {
    std::istringstream text(read(folder / "cpu.max"));  // "200000 100000", "max 100000"
    std::string quota;
    std::string period;
    text >> quota >> period;
    limit_to(quota_cores(parse_int(quota), parse_int(period)));
  }
  const fs::path v1 = root / "sys/fs/cgroup/cpu";
  for (const fs::path& folder : group_folders(v1, group_of(root, "cpu,cpuacct"))) {
    limit_to(quota_cores(number_in(folder / "cpu.cfs_quota_us"),
                         number_in(folder / "cpu.cfs_period_us")));
  }
  return cores;
}

}  // namespace

MachineLimits machine_limits(const std::filesystem::path& root) {
  return {usable_cores(root), free_memory(root)};
}

}  // namespace attune
