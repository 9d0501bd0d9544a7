// The compile-time setting of a kernel and the arithmetic that follows from it. Compiled by the
// host compiler and by NVRTC (with -default-device), so it includes no standard header.
#pragma once

#include "templates/int_types.h"

namespace attune {

// Where token p of a sequence lies, and what its row holds.
enum class KvLayout : int {
  kContiguous,    // row p of the sequence's buffers of K and of V
  kRing,          // row p % ring_capacity of them
  kPaged,         // row p % page_size of the pages block_table[p / page_size] of K and of V
  kUnified,       // as contiguous, in one buffer of unified rows
  kUnifiedPaged,  // as paged, in one pool of unified rows
};
constexpr bool is_paged(KvLayout layout) {
  return layout == KvLayout::kPaged || layout == KvLayout::kUnifiedPaged;
}
constexpr bool is_unified(KvLayout layout) {
  return layout == KvLayout::kUnified || layout == KvLayout::kUnifiedPaged;
}

// The unified row of a global layer whose K and V come from one projection:
//   [K_rot 128 | V_id 384 | V_rot 128]
// Scores contract columns 0..511 with a query in the order of unified_query_dim, whose V_id part
// carries K's norm weight; columns 128..639 are V in the order of unified_value_dim.
// ROT are the head dimensions 0..63 and 256..319, in this order; the others are "id".
constexpr int kUnifiedHeadDim = 512;
constexpr int kUnifiedRotated = 128;
constexpr int kUnifiedColumns = kUnifiedHeadDim + kUnifiedRotated;
// The head dimension of column `column` of a unified query.
constexpr int unified_query_dim(int column) {
  if (column < 64) return column;
  return column < 128 ? column + 192 : column < 320 ? column - 64 : column;
}
// The head dimension of column kUnifiedRotated + `column` of a unified row.
constexpr int unified_value_dim(int column) {
  if (column < 192) return column + 64;
  return column < 384 ? column + 128 : column < 448 ? column - 384 : column - 192;
}
// Elements of a row of a layout.
constexpr int kv_row_columns(KvLayout layout, int head_dim) {
  return is_unified(layout) ? kUnifiedColumns : head_dim;
}

// Pages of a paged layout hold a power of two of rows.
constexpr int kMinPageSize = 16;
constexpr int kMaxPageSize = 256;

struct KernelConfig {
  int block_m;     // packed query rows per CTA (tokens x heads of one KV head), a multiple of 8
  int block_n;     // KV rows of one tile, a multiple of 16
  int num_stages;  // K slots in shared memory, and as many V slots; slots of unified rows; of each
                   // stream where a CTA has several
  int num_warps;   // warps per CTA

  friend constexpr bool operator==(const KernelConfig&, const KernelConfig&) = default;
};

constexpr int kWarpSize = 32;
constexpr int kMmaRows = 16;         // rows of one mma.sync.m16n8k16 tile
constexpr int kMmaTokens = 8;        // columns of one mma.sync.m16n8k16 tile
constexpr int kBytesPerElement = 2;  // bf16
// A warp's share of the output columns is a multiple of this: one ldmatrix.x4.trans of V.
constexpr int kOutputColumnsPerWarp = 16;

// The combine: a CTA of 4 warps reduces 128 columns of one row, its warps sharing the splits. One of
// 512 threads for a row takes as long [h200]. So many CTAs on an SM leave registers for the loads of
// all splits of a row at once; without the bound ptxas makes do with 32 and has them follow each
// other, 1.1 to 1.6 us later.
constexpr int kCombineThreads = 128;
constexpr int kCombineCtasPerSm = 8;
constexpr int combine_columns(int head_dim) { return head_dim < 128 ? head_dim : 128; }

// Partial rows are fp32, or packed: numbers of 16 bits, fixed point with a factor for each row. Half
// the bytes at 9e-6 of the row's largest number.
constexpr float kPackedMax = 32767.0f;
constexpr int partial_element_bytes(bool packed) { return packed ? 2 : 4; }
constexpr int partial_stats(bool packed) { return packed ? 2 : 1; }  // floats: lse, factor

// Work of one CTA in one iteration of the tensor probe (templates/probe.cuh).
constexpr int kProbeTensorThreads = 256;
constexpr double probe_tensor_flops_per_iteration(bool wgmma) {
  // wgmma: 2 warpgroups x 4 x m64n256k16; mma.sync: 8 warps x 16 x m16n8k16.
  return wgmma ? 2.0 * 4 * 2 * 64 * 256 * 16 : 8.0 * 16 * 2 * 16 * 8 * 16;
}

// A ring is at least as long as the longest tile, so that a tile wraps once at most.
constexpr int kMinRingCapacity = 128;

// For launch bounds: 1 where one CTA alone finds shared memory on an SM of the architecture that is
// compiled for, else 0, which says nothing. 1 KB of each is the driver's.
#ifdef __CUDA_ARCH__
constexpr int one_cta_per_sm(int smem_bytes) {
  const int kilobytes = __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ == 1200 ? 100
                        : __CUDA_ARCH__ < 900                                                 ? 164
                                                                                              : 228;
  return 2 * (smem_bytes + 1024) > kilobytes << 10 ? 1 : 0;
}
#endif

// How the warps of a CTA divide the score tile: `rows` groups along BLOCK_M times `tokens` groups
// along BLOCK_N.
struct WarpGrid {
  int rows;
  int tokens;
};

// Picks the division that reads the fewest shared-memory bytes: every warp reads the Q rows of its
// row group, and every row group reads the whole K tile. {0, 0} when the warps
// cannot be placed.
constexpr WarpGrid score_warp_grid(const KernelConfig& config) {
  WarpGrid best{0, 0};
  int best_cost = 0;
  for (int rows = 1; rows <= config.num_warps; rows *= 2) {
    const int tokens = config.num_warps / rows;
    const bool fits = rows * tokens == config.num_warps &&
                      config.block_m % (rows * kMmaRows) == 0 &&
                      config.block_n % (tokens * kMmaTokens) == 0;
    if (!fits) continue;
    const int cost = config.num_warps * (config.block_m / rows) + rows * config.block_n;
    if (best.rows == 0 || cost < best_cost) {
      best = {rows, tokens};
      best_cost = cost;
    }
  }
  return best;
}

// Row pitch of the probability tile in elements: 8 elements of padding put the 8 rows of an
// ldmatrix into different banks for every BLOCK_N that is a multiple of 16.
constexpr int probability_pitch(const KernelConfig& config) { return config.block_n + 8; }

// Elements of one stage of KV tiles in shared memory.
constexpr int kv_stage_elements(const KernelConfig& config, int head_dim, KvLayout layout) {
  return config.block_n * (is_unified(layout) ? kUnifiedColumns : 2 * head_dim);
}

// Shared memory of one CTA of the split-KV kernel in bytes:
// Q | K slots | V slots | P | row offsets | row limits | row maxima and sums per token group | row
// scales. Unified rows have one kind of slot.
constexpr int splitkv_smem_bytes(const KernelConfig& config, int head_dim, KvLayout layout) {
  const int rows = config.block_m;
  const int tiles =
      rows * head_dim + config.num_stages * kv_stage_elements(config, head_dim, layout);
  const int probabilities = rows * probability_pitch(config);
  const int row_bytes = 8 + 8 + 4 * (score_warp_grid(config).tokens + 1);
  return (tiles + probabilities) * kBytesPerElement + rows * row_bytes;
}

// How the warps of a tiled kernel divide its tiles: row groups x column groups. The tokens of a
// score tile are divided among the column groups, and so are the columns of the output. {0, 0}
// when the warps cannot be placed.
constexpr int kMaxColumnGroups = 4;
constexpr WarpGrid tiled_warp_grid(const KernelConfig& config) {
  // 32 rows a warp read a quarter less shared memory for a product than 16 (+7% at head_dim 512,
  // and at 256 with 128 rows [h200]), but need P to be exchanged. In small CTAs, of which several
  // run on an SM, that gains nothing, and P would be the memory that they have not.
  for (int row_tiles = config.num_warps >= 8 ? 2 : 1; row_tiles >= 1; --row_tiles) {
    const int rows = config.block_m / (row_tiles * kMmaRows);
    if (rows == 0 || config.block_m % (row_tiles * kMmaRows) != 0) continue;
    const int columns = config.num_warps / rows;
    const bool fits = rows * columns == config.num_warps && columns <= kMaxColumnGroups &&
                      (columns & (columns - 1)) == 0 &&
                      config.block_n % (columns * 2 * kMmaTokens) == 0;
    if (fits) return {rows, columns};
  }
  return {0, 0};
}

// Whether P finds room in the 128 columns of a unified tile that scores alone have a use for.
constexpr bool tiled_p_in_slot(const KernelConfig& config, KvLayout layout) {
  const int panels = (config.block_m - 1) / config.block_n + (config.block_n - 1) / 64 + 1;
  return is_unified(layout) && tiled_warp_grid(config).tokens > 1 && panels * 64 <= kUnifiedRotated;
}

// Shared memory of one CTA of the tiled kernel in bytes:
// Q | K slots | V slots, and where warps share their rows: P | row maxima per column group.
constexpr int tiled_smem_bytes(const KernelConfig& config, int head_dim, KvLayout layout) {
  const int rows = config.block_m;
  const int tiles =
      rows * head_dim + config.num_stages * kv_stage_elements(config, head_dim, layout);
  const int groups = tiled_warp_grid(config).tokens;
  const bool has_p = groups > 1 && !tiled_p_in_slot(config, layout);
  const int probabilities = has_p ? rows * probability_pitch(config) : 0;
  return (tiles + probabilities) * kBytesPerElement + (groups > 1 ? rows * 4 * groups : 0);
}

// K and V of slices.cuh come in slices of this many columns.
constexpr int kSliceColumns = 128;
// Shared memory of one CTA of the kernel with slices in bytes:
// Q | slots, and where warps share their rows: P | row maxima per column group.
constexpr int slices_smem_bytes(const KernelConfig& config, int head_dim, KvLayout) {
  const int rows = config.block_m;
  const int tiles = rows * head_dim + config.num_stages * config.block_n * kSliceColumns;
  const int groups = tiled_warp_grid(config).tokens;
  const int probabilities = groups > 1 ? rows * probability_pitch(config) : 0;
  return (tiles + probabilities) * kBytesPerElement + (groups > 1 ? rows * 4 * groups : 0);
}

// The largest cluster whose CTAs merge the splits of their rows; above 8 not portable to every
// architecture that has clusters, but an H200 has room for seven of 16.
constexpr int kMaxClusterSplits = 16;
// CTAs of all clusters of a launch: what an H200 holds at once in clusters of any size. One cluster
// more would wait for the end of the others: 14 us instead of 9 for 16 heads x 8 [h200].
constexpr int kMaxClusterCtas = 112;

// How the warps of a kernel with streams (device/stream_tiles.cuh) divide its work: a warp owns
// warp_rows rows, as many as 128 accumulators a thread hold; row_groups warps share a stream. All 0
// when the warps cannot be placed.
struct StreamGrid {
  int warp_rows;
  int row_groups;
  int streams;
};
constexpr StreamGrid stream_grid(const KernelConfig& config, int head_dim) {
  const int most_rows = 4096 / head_dim;
  const int warp_rows = config.block_m < most_rows ? config.block_m : most_rows;
  if (warp_rows % kMmaTokens != 0 || config.block_m % warp_rows != 0) return {0, 0, 0};
  const int row_groups = config.block_m / warp_rows;
  if (config.num_warps % row_groups != 0) return {0, 0, 0};
  return {warp_rows, row_groups, config.num_warps / row_groups};
}

// Floats that a row of a stream's output takes in shared memory, padding included.
constexpr int stream_row_floats(int head_dim) { return head_dim + 4; }

// The slots of all streams in bytes; at the end the streams' outputs lie there.
constexpr int stream_slots_bytes(const KernelConfig& config, int head_dim, KvLayout layout) {
  const int streams = stream_grid(config, head_dim).streams;
  const int slots =
      streams * config.num_stages * kv_stage_elements(config, head_dim, layout) * kBytesPerElement;
  const int outputs = streams * config.block_m * stream_row_floats(head_dim) * 4;
  return slots > outputs ? slots : outputs;
}

// Shared memory of one CTA of the swapped kernel in bytes:
// slots of the streams, or their outputs | Q | 4 barriers a slot | row maxima, sums and factors of
// the streams | row offsets.
constexpr int swapab_smem_bytes(const KernelConfig& config, int head_dim, KvLayout layout) {
  const int streams = stream_grid(config, head_dim).streams;
  return stream_slots_bytes(config, head_dim, layout) +
         config.block_m * head_dim * kBytesPerElement + streams * config.num_stages * 4 * 8 +
         streams * config.block_m * (8 + 4) + config.block_m * 8;
}

// Shared memory of one CTA of the one-round kernel in bytes:
// a stream of slots a warp | Q | 4 barriers a slot | row maxima and sums of the warps | P.
constexpr int oneround_smem_bytes(const KernelConfig& config, int head_dim, KvLayout layout) {
  const int slots = config.num_warps * config.num_stages;
  return (slots * kv_stage_elements(config, head_dim, layout) + config.block_m * head_dim) *
             kBytesPerElement +
         slots * 4 * 8 + config.num_warps * config.block_m * (4 + 4) +
         config.num_warps * config.block_n * config.block_m * kBytesPerElement;
}

// The wgmma kernel: a producer and two consumer warpgroups, 64 rows.
constexpr int kWgmmaHeadDim = 512;
constexpr int kWgmmaBlockM = 64;
constexpr int kWgmmaWarps = 12;
// Panels of 64 columns that a bulk copy brings: half a row, or what divides the parts of a unified
// one.
constexpr int wgmma_box_panels(KvLayout layout) { return is_unified(layout) ? 2 : 4; }
// P and its row factors are handed over in turn; P of unified rows lies in their slots.
constexpr int wgmma_p_buffers(const KernelConfig& config, KvLayout layout) {
  return is_unified(layout) ? config.num_stages : 2;
}
// Shared memory of one CTA of the wgmma kernel in bytes:
// Q | K slots | V slots | P | row factors | row magnitudes | row inverses | mbarriers.
constexpr int wgmma_smem_bytes(const KernelConfig& config, int head_dim, KvLayout layout) {
  const int rows = config.block_m;
  const int buffers = wgmma_p_buffers(config, layout);
  const int tiles =
      rows * head_dim + config.num_stages * kv_stage_elements(config, head_dim, layout);
  const int probabilities = is_unified(layout) ? 0 : buffers * rows * 64;
  const int parts = is_unified(layout) ? 2 : 4;
  const int barriers = 2 * config.num_stages * parts + (is_unified(layout) ? 2 : 3) * buffers + 1;
  return (tiles + probabilities) * kBytesPerElement + rows * (4 * buffers + 8 + 4) + 8 * barriers;
}

}  // namespace attune
