// What kernels of the host device are compiled for. Its text is the host's DeviceInfo::arch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attune {

enum class HostChecks {
  kNone,
  kAccesses,    // the module reports every load and store to the device
  kSanitizers,  // address and undefined behaviour, for a process that runs with both
};

// Text form "host", "host+checks" or "host+sanitizers", each with "+debug" behind it when it is on.
struct HostTarget {
  HostChecks checks = HostChecks::kNone;
  bool debug = false;  // not optimized, for a debugger

  std::string text() const;
  static HostTarget parse(std::string_view text);  // throws InvalidArgument
  friend bool operator==(const HostTarget&, const HostTarget&) = default;
};

// Whether `arch` means the host device. It may still be misspelt after the "+".
bool is_host_arch(std::string_view arch);

// The options of every compile for `target`: the same on one machine whichever compiler it has.
std::vector<std::string> host_options(const HostTarget& target);

}  // namespace attune
