// The corners of a family's config space on a device.
#pragma once

#include <algorithm>
#include <set>
#include <vector>

#include "jit/device_info.h"
#include "templates/config.h"
#include "templates/family.h"

namespace attune {

inline int accumulators_of(const KernelConfig& config, int head_dim) {
  return config.block_m * head_dim / (config.num_warps * kWarpSize);
}

// The configs with the least and the most of each number, among those that the device's limits and
// 128 accumulators a thread admit.
inline std::set<KernelConfig> config_corners(const Family& family, int head_dim, KvLayout layout,
                                             const DeviceInfo& device) {
  std::vector<KernelConfig> configs = family.configs(head_dim, layout);
  std::erase_if(configs, [&](const KernelConfig& config) {
    return family.smem_bytes(config, head_dim, layout) > device.max_smem_per_block_bytes ||
           accumulators_of(config, head_dim) > 128;
  });
  std::set<KernelConfig> found;
  for (const auto field : {&KernelConfig::block_m, &KernelConfig::block_n,
                           &KernelConfig::num_stages, &KernelConfig::num_warps}) {
    const auto [least, most] =
        std::minmax_element(configs.begin(), configs.end(), [&](const auto& a, const auto& b) {
          return a.*field != b.*field ? a.*field < b.*field : a < b;
        });
    if (least == configs.end()) continue;
    found.insert(*least);
    found.insert(*most);
  }
  return found;
}

}  // namespace attune
