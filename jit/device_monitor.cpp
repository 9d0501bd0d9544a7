#include "jit/device_monitor.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "common/text.h"
#include "jit/nvml.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

class BlindMonitor : public DeviceMonitor {
 public:
  DeviceState read() override { return {}; }
};

// The parent of a process; 0 when it is gone. The name in front of it may hold spaces and brackets.
unsigned parent_of(unsigned pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  const auto fields = split(std::string_view(line).substr(name_end + 1), ' ');
  const auto parent = fields.size() > 2 ? parse_int(fields[2]) : std::nullopt;  // "", state, parent
  return static_cast<unsigned>(parent.value_or(0));
}

std::map<unsigned, unsigned> all_parents() {
  std::map<unsigned, unsigned> parents;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const auto pid = parse_int(entry.path().filename().string());
    if (!pid) continue;
    parents[static_cast<unsigned>(*pid)] = parent_of(static_cast<unsigned>(*pid));
  }
  return parents;
}

fs::path executable_of(unsigned pid) {
  std::error_code error;
  return fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", error);
}

// Whether a program of attune that lies beside this one.
bool is_companion(unsigned pid) {
  const fs::path program = executable_of(pid);
  return program.filename().string().starts_with("attune") &&
         program.parent_path() == executable_of(static_cast<unsigned>(getpid())).parent_path();
}

}  // namespace

std::unique_ptr<DeviceMonitor> open_device_monitor(const DeviceInfo& device) {
  std::unique_ptr<DeviceMonitor> monitor;
  if (!device.uuid.empty()) {
    if (auto nvml = load_nvml()) monitor = open_nvml_monitor(std::move(nvml), device.uuid);
  }
  if (!monitor) monitor = std::make_unique<BlindMonitor>();
  return monitor;
}

std::string throttle_text(unsigned throttle) {
  std::string text;
  const auto add = [&](unsigned bit, const char* name) {
    if ((throttle & bit) != 0) text += (text.empty() ? "" : "+") + std::string(name);
  };
  add(kThrottlePower, "power");
  add(kThrottleThermal, "thermal");
  add(kThrottleOther, "slowdown");
  return text;
}

std::vector<unsigned> own_processes() {
  const auto self = static_cast<unsigned>(getpid());
  const auto parents = all_parents();
  unsigned root = self;
  for (auto it = parents.find(self); it != parents.end() && is_companion(it->second);
       it = parents.find(root)) {
    root = it->second;
  }
  std::vector<unsigned> own = {root};
  for (std::size_t i = 0; i < own.size(); ++i) {
    for (const auto& [pid, parent] : parents) {
      if (parent == own[i] && std::find(own.begin(), own.end(), pid) == own.end()) {
        own.push_back(pid);
      }
    }
  }
  return own;
}

int count_foreign(const std::vector<unsigned>& listed, const std::vector<unsigned>& own,
                  unsigned self) {
  const auto is_own = [&](unsigned pid) {
    return std::find(own.begin(), own.end(), pid) != own.end();
  };
  const auto num_listed = static_cast<int>(listed.size());
  if (std::find(listed.begin(), listed.end(), self) == listed.end()) {
    return std::max(0, num_listed - static_cast<int>(own.size()));
  }
  return num_listed - static_cast<int>(std::count_if(listed.begin(), listed.end(), is_own));
}

}  // namespace attune
