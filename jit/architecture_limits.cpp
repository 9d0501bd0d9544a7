#include <array>
#include <string_view>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/device_info.h"
#include "jit/host/host_target.h"

namespace attune {
namespace {

struct Architecture {
  std::string_view arch;
  int major;
  int minor;
  int num_sms;
  int memory_gib;
  int max_smem_per_block_bytes;
  int smem_per_sm_bytes;
  int l2_mib;
};

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; SMs, memory and L2
// of the part named on the right.
constexpr std::array<Architecture, 7> kArchitectures = {{
    {"sm_80", 8, 0, 108, 80, 166912, 167936, 40},       // A100
    {"sm_86", 8, 6, 84, 48, 101376, 102400, 6},         // RTX A6000
    {"sm_89", 8, 9, 128, 24, 101376, 102400, 72},       // RTX 4090
    {"sm_90a", 9, 0, 132, 140, 232448, 233472, 60},     // H200
    {"sm_100a", 10, 0, 148, 180, 232448, 233472, 126},  // B200
    {"sm_120", 12, 0, 170, 32, 101376, 102400, 96},     // RTX 5090
    // Our own choice: what sm_90a may ask for, on a small machine. All of the host's are alike.
    {"host", 9, 0, 2, 8, 232448, 233472, 4},
}};

}  // namespace

DeviceInfo architecture_limits(const std::string& arch) {
  // The host's targets have one row; a misspelt one is refused with their texts.
  const bool is_host = is_host_arch(arch);
  if (is_host) HostTarget::parse(arch);
  const std::string_view row = is_host ? std::string_view("host") : arch;
  std::string known;
  for (const Architecture& entry : kArchitectures) {
    if (entry.arch != row) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.arch);
      continue;
    }
    DeviceInfo info;
    info.name = fmt::format("{} (no device)", arch);
    info.arch = arch;
    info.compute_major = entry.major;
    info.compute_minor = entry.minor;
    info.num_sms = entry.num_sms;
    info.memory_bytes = static_cast<std::size_t>(entry.memory_gib) << 30;
    info.max_smem_per_block_bytes = entry.max_smem_per_block_bytes;
    info.smem_per_sm_bytes = entry.smem_per_sm_bytes;
    info.registers_per_sm = 65536;
    info.max_threads_per_block = 1024;
    info.l2_bytes = static_cast<std::size_t>(entry.l2_mib) << 20;
    return info;
  }
  throw InvalidArgument("unknown architecture", fmt::format("arch='{}'", arch),
                        fmt::format("use one of {}", known));
}

}  // namespace attune
