// Arithmetic that the parts of the candidate space share: which keys a problem has, and how many CTAs find
// room on an SM.
#pragma once

#include "jit/device_info.h"
#include "jit/host/host_target.h"
#include "templates/family.h"
#include "templates/split_plan.h"

namespace attune {

// Shared memory that the driver keeps for itself, per resident CTA.
constexpr int kReservedSmemBytes = 1024;
constexpr int kThreadsPerSm = 2048;

inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

// Keys that one sequence of the largest kv_len of the problem reads.
inline int max_visible_keys(const Problem& problem) {
  const KeyRange keys = visible_keys(problem.kv.max, problem.seqlen_q, 0, problem.seqlen_q - 1,
                                     problem.window, problem.causal ? 1 : 0);
  return keys.end - keys.begin;
}

// Whether `count` CTAs of this config fit on one SM by shared memory and threads. A core of the
// host device runs one at a time.
inline bool fits_per_sm(int count, const Problem& problem, const Family& family,
                        const KernelConfig& config, const DeviceInfo& device) {
  if (is_host_arch(device.arch)) return count == 1;
  const int smem_bytes =
      family.smem_bytes(config, problem.head_dim, problem.kv_layout) + kReservedSmemBytes;
  return count * smem_bytes <= device.smem_per_sm_bytes &&
         count * config.num_warps * kWarpSize <= kThreadsPerSm;
}

}  // namespace attune
