#include "jit/device_info.h"

#include <fmt/format.h>

namespace attune {

std::string DeviceInfo::identity() const {
  constexpr std::size_t kGiB = std::size_t{1} << 30;
  return fmt::format("{}|{}|{}.{}|{}|{}|{}", name, arch, compute_major, compute_minor, num_sms,
                     memory_bytes / kGiB * kGiB, mig ? 1 : 0);
}

}  // namespace attune
