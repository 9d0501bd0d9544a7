#include "jit/host/host_info.h"

#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "common/text.h"
#include "jit/machine_limits.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

// The value of the first line "name : value" of a file; empty when there is none.
std::string value_in(const fs::path& file, std::string_view name) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (begin == std::string::npos) return {};
    return line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
  }
  return {};
}

// Some systems tell no model, such as most on ARM.
std::string cpu_name(const fs::path& root) {
  std::string name = value_in(root / "proc/cpuinfo", "model name");
  utsname system{};
  if (name.empty() && uname(&system) == 0) name = system.machine;
  std::replace(name.begin(), name.end(), '|', ' ');  // it separates the parts of an identity
  return name;
}

// All of the machine's, whatever the container may use: part of the identity, so it must not change
// from one container to the next.
std::size_t memory_bytes(const fs::path& root) {
  const std::string text = value_in(root / "proc/meminfo", "MemTotal");
  const auto kib = parse_int(text.substr(0, text.find(' ')));
  return kib && *kib > 0 ? static_cast<std::size_t>(*kib) << 10 : 0;
}

}  // namespace

DeviceInfo host_device_info(const HostTarget& target, const fs::path& root) {
  DeviceInfo info = architecture_limits(target.text());
  info.name = fmt::format("host CPU {}", cpu_name(root));
  info.num_sms = machine_limits(root).cores;
  info.memory_bytes = memory_bytes(root);
  return info;
}

}  // namespace attune
