// The CTA of wgrows.cuh: a producer and two consumer warpgroups of 64 rows each. Compiled by the host
// compiler and by NVRTC.
#pragma once

#include "templates/config.h"

namespace attune {

constexpr int kWgrowsHeadDim = 256;
constexpr int kWgrowsBlockM = 128;
constexpr int kWgrowsWarps = 12;

// Shared memory of one CTA in bytes: Q | K slots | V slots | mbarriers: full and empty of every slot,
// and one for the queries.
constexpr int wgrows_smem_bytes(const KernelConfig& config, int head_dim, KvLayout layout) {
  const int tiles =
      config.block_m * head_dim + config.num_stages * kv_stage_elements(config, head_dim, layout);
  return tiles * kBytesPerElement + (4 * config.num_stages + 1) * 8;
}

// Row blocks of a KV head that follow each other in the order of the work, before those of the next
// head: CTAs of a pair of SMs read the same keys. More of them would even out the SMs' work less.
constexpr int kWgrowsNeighbours = 2;

}  // namespace attune
