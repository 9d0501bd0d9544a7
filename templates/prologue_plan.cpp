#include "templates/prologue_plan.h"

#include <fmt/format.h>

#include "common/error.h"
#include "templates/prologue_config.h"

namespace attune {
namespace {

// An H200 runs so many CTAs of one warp at once: 132 SMs with 32 each. Up to here rows in CTAs of
// their own spread best, beyond it larger CTAs fill the SMs' warps.
constexpr int kMaxRowsInOwnCta = 132 * 32;
constexpr int kMaxGridY = 65535;  // and z

[[noreturn]] void refuse(int head_dim, KvLayout layout, const std::string& why) {
  throw InvalidArgument("cannot plan a prologue",
                        fmt::format("head_dim={} layout={}", head_dim, name_of(layout)), why);
}

}  // namespace

std::optional<Unsupported> prologue_limits(int head_dim, KvLayout layout) {
  if (head_dim != 64 && head_dim != 128 && head_dim != 256 && head_dim != 512) {
    return Unsupported{fmt::format("head_dim={} is none of 64, 128, 256, 512", head_dim)};
  }
  if (is_unified(layout) && head_dim != kUnifiedHeadDim) {
    return Unsupported{
        fmt::format("head_dim={}: unified rows are defined for {}", head_dim, kUnifiedHeadDim)};
  }
  return std::nullopt;
}

KernelLaunch plan_prologue(int head_dim, KvLayout layout, const PrologueParams& params) {
  if (const auto limit = prologue_limits(head_dim, layout)) refuse(head_dim, layout, limit->detail);
  const int rows = params.num_q_heads + params.num_kv_heads;
  if (params.batch < 1 || params.seqlen_q < 1 || params.num_q_heads < 1 ||
      params.num_kv_heads < 0 || params.batch > kMaxGridY || rows > kMaxGridY) {
    refuse(head_dim, layout,
           fmt::format("batch={} seqlen_q={} num_q_heads={} num_kv_heads={} make no grid",
                       params.batch, params.seqlen_q, params.num_q_heads, params.num_kv_heads));
  }
  const int multiple = prologue_lane_pairs(head_dim);
  const int num_pairs = params.num_pairs;
  if (num_pairs < 0 || num_pairs > head_dim / 2 || num_pairs % multiple != 0) {
    refuse(
        head_dim, layout,
        fmt::format("num_pairs={} is a multiple of {}, at most head_dim / 2", num_pairs, multiple));
  }
  if (is_unified(layout) && num_pairs != kUnifiedRotated / 2) {
    refuse(
        head_dim, layout,
        fmt::format("num_pairs={}: unified rows rotate {} pairs", num_pairs, kUnifiedRotated / 2));
  }
  const std::int64_t all_rows = std::int64_t{params.batch} * params.seqlen_q * rows;
  const int warps = all_rows <= kMaxRowsInOwnCta ? 1 : kPrologueMaxThreads / kWarpSize;
  KernelLaunch launch;
  launch.grid = {static_cast<unsigned>(params.seqlen_q),
                 static_cast<unsigned>((rows + warps - 1) / warps),
                 static_cast<unsigned>(params.batch)};
  launch.block = {static_cast<unsigned>(warps * kWarpSize), 1, 1};
  launch.programmatic = true;
  return launch;
}

KernelLaunch plan_state() {
  KernelLaunch launch;
  launch.block = {kMaxStateWrites, 1, 1};
  return launch;
}

std::vector<float> fold_unified_weights(std::span<const float> q_weight,
                                        std::span<const float> k_weight) {
  if (q_weight.size() != kUnifiedHeadDim || k_weight.size() != kUnifiedHeadDim) {
    throw InvalidArgument("cannot fold norm weights",
                          fmt::format("q={} k={}", q_weight.size(), k_weight.size()),
                          fmt::format("unified rows are defined for {} weights", kUnifiedHeadDim));
  }
  std::vector<float> folded(q_weight.begin(), q_weight.end());
  for (int dim = 0; dim < kUnifiedHeadDim; ++dim) {
    if (unified_query_column(dim) >= kUnifiedRotated) folded[dim] *= k_weight[dim];
  }
  return folded;
}

}  // namespace attune
