#include "templates/family_limits.h"

#include <fmt/format.h>

#include "templates/wgrows_config.h"

namespace attune {
namespace {

// K slots of fewer keys leave the memory idle, of more add nothing: 64 KB in flight per SM read at
// the full rate of an H200, and at head_dim 256 that is 64 keys of K and V.
constexpr int kMinKeysInFlight = 32;
constexpr int kMaxKeysInFlight = 128;
// Of the streams' slots together: half of them are under way, and 64 KB read at the full rate.
constexpr int kMinBytesInFlight = 96 << 10;
constexpr int kMaxStreamWarps = 8;
// A block of more rows is work for a family that reads a tile once for many of them. Beside 128
// accumulators a thread has registers for the queries and the state of 16 rows, not of 32.
constexpr int kMaxAccumulators = 128;
constexpr int kMaxStreamBlockM = 32;
constexpr int kMaxFullWarpRows = 16;
constexpr int kMaxStreamBlockN = 32;
// Of the slots of a kernel whose warps share the keys of a round: what a CTA can have under way
// before its queries are there. Queries and accumulators of a thread beside 60 other registers.
constexpr int kMinRoundBytes = 112 << 10;
constexpr int kMaxRoundBytes = 208 << 10;
constexpr int kMaxRoundRegisters = 192;
constexpr int kMaxRoundKeys = 128;
// Scores that a thread holds beside its output accumulators.
constexpr int kMaxScoresPerThread = 64;

// Of the tiles of device/stream_tiles.cuh.
std::optional<Unsupported> stream_tile_limits(const KernelConfig& config, KvLayout layout) {
  if (config.block_n % kMmaRows != 0 || config.block_n > kMaxStreamBlockN) {
    return Unsupported{fmt::format("block_n={}: a stream's tile has 16 or {} keys", config.block_n,
                                   kMaxStreamBlockN)};
  }
  if (is_paged(layout) && config.block_n != kMinPageSize) {
    return Unsupported{
        fmt::format("block_n={}: a copy of {} keys lies in one page whatever its "
                    "size is",
                    config.block_n, kMinPageSize)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Unsupported> splitkv_limits(const KernelConfig& config, int head_dim, KvLayout) {
  if (score_warp_grid(config).rows == 0) {
    return Unsupported{fmt::format("{} warps do not divide a {}x{} score tile", config.num_warps,
                                   config.block_m, config.block_n)};
  }
  const int columns = head_dim / config.num_warps;
  if (columns % kOutputColumnsPerWarp != 0 || columns == 0) {
    return Unsupported{fmt::format("head_dim={} over num_warps={} is no multiple of {} columns",
                                   head_dim, config.num_warps, kOutputColumnsPerWarp)};
  }
  return std::nullopt;
}

std::optional<Unsupported> swapab_limits(const KernelConfig& config, int head_dim,
                                         KvLayout layout) {
  const StreamGrid grid = stream_grid(config, head_dim);
  if (grid.streams == 0) {
    return Unsupported{fmt::format("{} warps over {} rows of head_dim={}: a warp owns {} rows",
                                   config.num_warps, config.block_m, head_dim, 4096 / head_dim)};
  }
  if (config.num_warps > kMaxStreamWarps) {
    return Unsupported{fmt::format("num_warps={}: {} have 255 registers a thread", config.num_warps,
                                   kMaxStreamWarps)};
  }
  if (auto limit = stream_tile_limits(config, layout)) return limit;
  if (grid.row_groups > 1 && config.num_stages < 2) {
    return Unsupported{fmt::format("{} warps share a stream: they need 2 stages", grid.row_groups)};
  }
  return std::nullopt;
}

// A warp's step is short beside the wait for its tile: what counts is the bytes in flight.
bool tries_stream(const KernelConfig& config, int head_dim, KvLayout layout) {
  const StreamGrid grid = stream_grid(config, head_dim);
  const int bytes = grid.streams * config.num_stages * kv_stage_elements(config, head_dim, layout) *
                    kBytesPerElement;
  const bool has_registers = grid.warp_rows <= kMaxFullWarpRows ||
                             grid.warp_rows * head_dim < kMaxAccumulators * kWarpSize;
  return config.block_m <= kMaxStreamBlockM && has_registers && config.num_warps >= 4 &&
         bytes >= kMinBytesInFlight;
}

std::optional<Unsupported> oneround_limits(const KernelConfig& config, int head_dim,
                                           KvLayout layout) {
  if (config.block_m != kMmaTokens && config.block_m != 2 * kMmaTokens) {
    return Unsupported{fmt::format("block_m={}: every warp holds all rows, {} or {}",
                                   config.block_m, kMmaTokens, 2 * kMmaTokens)};
  }
  if (config.num_warps % 2 != 0 || config.num_warps > kMaxStreamWarps ||
      head_dim % (config.num_warps * kMmaRows) != 0) {
    return Unsupported{
        fmt::format("num_warps={}: 2 to {} share the columns of head_dim={}, each a "
                    "multiple of {}",
                    config.num_warps, kMaxStreamWarps, head_dim, kMmaRows)};
  }
  return stream_tile_limits(config, layout);
}

// In one round, or in few: slots for all that a split of a short context has. A thread's queries and
// accumulators leave registers for the rest.
bool tries_round(const KernelConfig& config, int head_dim, KvLayout layout) {
  const int bytes = config.num_warps * config.num_stages *
                    kv_stage_elements(config, head_dim, layout) * kBytesPerElement;
  const int queries = config.block_m * head_dim / (2 * kWarpSize);
  const int accumulators =
      config.block_m * (head_dim / config.num_warps + config.block_n) / kWarpSize;
  return config.num_warps >= 4 && config.num_warps * config.block_n <= kMaxRoundKeys &&
         queries + accumulators <= kMaxRoundRegisters && bytes >= kMinRoundBytes &&
         bytes <= kMaxRoundBytes;
}

bool tries_tile(const KernelConfig& config, int, KvLayout) {
  const int keys_in_flight = config.block_n * config.num_stages;
  if (keys_in_flight < kMinKeysInFlight || keys_in_flight > kMaxKeysInFlight) return false;
  return config.block_m * config.block_n <= kMaxScoresPerThread * config.num_warps * kWarpSize;
}

// 128 accumulators a thread, and rows for which whole tiles have hardly room.
bool tries_slices(const KernelConfig& config, int head_dim, KvLayout) {
  constexpr int kLeastRows = 64;
  return config.block_m >= kLeastRows && (config.block_n == 32 || config.block_n == 64) &&
         config.block_m * head_dim == kMaxAccumulators * config.num_warps * kWarpSize;
}

// The same; but pages of 32 rows have tiles of 32 keys.
bool tries_wgrows(const KernelConfig& config, int head_dim, KvLayout layout) {
  return tries_tile(config, head_dim, layout) && config.block_n * config.num_stages == 128 &&
         (config.block_n == 64 || is_paged(layout));
}

std::optional<Unsupported> tiled_limits(const KernelConfig& config, int head_dim, KvLayout) {
  const auto is_power_of_two = [](int value) { return (value & (value - 1)) == 0; };
  if (!is_power_of_two(config.block_n) || !is_power_of_two(config.num_warps)) {
    return Unsupported{fmt::format("block_n={} and num_warps={} are powers of two", config.block_n,
                                   config.num_warps)};
  }
  const int column_groups = tiled_warp_grid(config).tokens;
  if (column_groups == 0) {
    return Unsupported{
        fmt::format("{} warps over {} rows: 1, 2 or {} may share 16 or 32 rows, each "
                    "16 tokens of {} or more",
                    config.num_warps, config.block_m, kMaxColumnGroups, config.block_n)};
  }
  if (head_dim / column_groups % kOutputColumnsPerWarp != 0) {
    return Unsupported{fmt::format("head_dim={} over {} warps is no multiple of {} columns",
                                   head_dim, column_groups, kOutputColumnsPerWarp)};
  }
  if (config.num_warps * kWarpSize * 8 % head_dim != 0) {
    return Unsupported{fmt::format("{} threads copy no whole rows of head_dim={}",
                                   config.num_warps * kWarpSize, head_dim)};
  }
  return std::nullopt;
}

// Those of the same rows, and what is divided among slices.
std::optional<Unsupported> slices_limits(const KernelConfig& config, int head_dim,
                                         KvLayout layout) {
  if (head_dim % (2 * kSliceColumns) != 0) {
    return Unsupported{
        fmt::format("head_dim={}: K and V come in slices of {} columns, at least two", head_dim,
                    kSliceColumns)};
  }
  if (config.num_stages < 2) {
    return Unsupported{"num_stages=1: a slice is requested while another one is read"};
  }
  const int most_stages = 2 * head_dim / kSliceColumns + 1;
  if (config.num_stages > most_stages) {
    return Unsupported{
        fmt::format("num_stages={}: a tile has {} slices, of which those of the next "
                    "one are requested no earlier",
                    config.num_stages, most_stages - 1)};
  }
  return tiled_limits(config, head_dim, layout);
}

std::optional<Unsupported> wgmma_limits(const KernelConfig& config, int head_dim, KvLayout layout) {
  if (head_dim != kWgmmaHeadDim) {
    return Unsupported{fmt::format("head_dim={}: two warpgroups share the {} columns of an output",
                                   head_dim, kWgmmaHeadDim)};
  }
  if (config.block_m != kWgmmaBlockM || config.num_warps != kWgmmaWarps) {
    return Unsupported{
        fmt::format("block_m={} num_warps={}: a producer and two consumer "
                    "warpgroups work on {} rows with {} warps",
                    config.block_m, config.num_warps, kWgmmaBlockM, kWgmmaWarps)};
  }
  if (config.block_n != 32 && config.block_n != 64) {
    return Unsupported{fmt::format("block_n={}: P is one panel of 32 or 64 keys", config.block_n)};
  }
  if (layout == KvLayout::kRing) {
    return Unsupported{"a box of rows does not wrap at the end of a ring"};
  }
  if (is_unified(layout) && config.num_stages < 2) {
    return Unsupported{"num_stages=1: the scores of a unified tile run ahead of its values"};
  }
  return std::nullopt;
}

std::optional<Unsupported> wgrows_limits(const KernelConfig& config, int head_dim, KvLayout) {
  if (head_dim != kWgrowsHeadDim) {
    return Unsupported{fmt::format("head_dim={}: a warpgroup holds {} columns of 64 rows", head_dim,
                                   kWgrowsHeadDim)};
  }
  if (config.block_m != kWgrowsBlockM || config.num_warps != kWgrowsWarps) {
    return Unsupported{
        fmt::format("block_m={} num_warps={}: a producer and two consumer warpgroups of 64 rows "
                    "each have {} rows and {} warps",
                    config.block_m, config.num_warps, kWgrowsBlockM, kWgrowsWarps)};
  }
  if (config.block_n != 32 && config.block_n != 64) {
    return Unsupported{fmt::format(
        "block_n={}: scores of 32 or 64 keys have room beside the output", config.block_n)};
  }
  if (config.num_stages < 2) {
    return Unsupported{"num_stages=1: the scores of a tile run ahead of its values"};
  }
  return std::nullopt;
}

}  // namespace attune
