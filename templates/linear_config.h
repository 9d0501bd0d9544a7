// Constants of linear.cuh that its launch arithmetic shares. Compiled by the host compiler and by
// NVRTC.
#pragma once

#include "templates/config.h"

namespace attune {

// What becomes of a row's products.
enum class LinearEpilogue : int {
  kStore,   // out = bf16(W x)
  kGeglu,   // W is [gate; up]: out = bf16(bf16(gelu_tanh(gate)) * up), of bf16(gate) and bf16(up)
  kSwiglu,  // the same with silu
  kLogits,  // fp32, with a softcap
};

enum class LinearWeights : int {
  kBf16,  // rows of bf16
  kInt4,  // packed rows (quantize.cuh)
};

// A panel is what a slot has of a row. Panels of x are 64 columns, 128 bytes.
constexpr int kLinearColumns = 64;
constexpr int kLinearRowBytes = kLinearColumns * kBytesPerElement;
// A packed panel: 256 columns in groups of 32, one scale a group.
//   [16 chunks of 8 numbers for each of 4 lanes | 8 scales, bf16]
// Chunk q + 4 h has for groups 4 h to 4 h + 3 a word each: columns 8 q to 8 q + 7 of the group. Column
// 2 p of them is at bit 4 p, column 2 p + 1 at bit 16 + 4 p. A number n of 4 bits is (n - 8) * scale.
constexpr int kInt4Columns = 256;
constexpr int kInt4GroupColumns = 32;
constexpr int kInt4Groups = kInt4Columns / kInt4GroupColumns;
constexpr int kInt4ScalesOffset = kInt4Columns / 2;
constexpr int kInt4RowBytes = kInt4ScalesOffset + kInt4Groups * kBytesPerElement;
constexpr int kInt4Zero = 8;
// Copies of packed rows begin at a multiple of this, a line of the memory, and may so begin early by less.
constexpr int kInt4LineBytes = 128;

constexpr int linear_panel_columns(LinearWeights weights) {
  return weights == LinearWeights::kInt4 ? kInt4Columns : kLinearColumns;
}
constexpr int linear_panels(LinearWeights weights, int in_features) {
  return (in_features + linear_panel_columns(weights) - 1) / linear_panel_columns(weights);
}
// Bytes of packed rows: [panels, rows, kInt4RowBytes].
constexpr long long int4_bytes(int rows, int in_features) {
  return 1LL * linear_panels(LinearWeights::kInt4, in_features) * rows * kInt4RowBytes;
}

// Panels are dealt to this many groups, and in each pass a group to a share: one warp, or two that have
// half of a packed panel each. The bits of an output depend on the groups, so they are no choice.
constexpr int kLinearShares = 8;
constexpr int linear_warps_of_panel(LinearWeights weights) {
  return weights == LinearWeights::kInt4 ? 2 : 1;
}
constexpr int linear_warps(LinearWeights weights) {
  return kLinearShares * linear_warps_of_panel(weights);
}
constexpr int kMaxLinearTokens = 16;
// Whether there are kernels of up to so many tokens at once. One token's x takes so little room that packed
// rows have slots more; beside rows of bf16 it makes no difference.
constexpr bool is_linear_token_block(int tokens, LinearWeights weights) {
  return tokens == kMmaTokens || tokens == kMaxLinearTokens ||
         (tokens == 1 && weights == LinearWeights::kInt4);
}
constexpr int linear_token_block(int num_tokens, LinearWeights weights) {
  if (num_tokens == 1 && is_linear_token_block(1, weights)) return 1;
  return num_tokens <= kMmaTokens ? kMmaTokens : kMaxLinearTokens;
}

// KernelConfig of this template: block_m tokens (8 or 16, with packed rows also 1); block_n rows of W in
// a slot, gate and up rows both counted; num_stages slots of each share; num_warps is linear_warps().
// One token comes as it is, more in panels of 64 columns with the 128-byte swizzle.
constexpr int linear_input_boxes(const KernelConfig& config, LinearWeights weights) {
  return config.block_m == 1 ? 1 : linear_panel_columns(weights) / kLinearColumns;
}
constexpr int linear_input_bytes(const KernelConfig& config, LinearWeights weights) {
  return config.block_m * linear_panel_columns(weights) * kBytesPerElement;
}
// Of the rows of W in a slot: all, or the gate's or up's.
constexpr int linear_part_bytes(const KernelConfig& config, LinearWeights weights, int num_parts) {
  const int rows = config.block_n / num_parts;
  if (weights == LinearWeights::kBf16) return rows * kLinearRowBytes;
  const int lines = (rows * kInt4RowBytes + kInt4LineBytes - 1) / kInt4LineBytes + 1;
  return lines * kInt4LineBytes;
}
// x | rows of W, room for two parts; x begins at a multiple of the swizzle, or of what bulk tensor copies
// ask for.
constexpr int linear_slot_bytes(const KernelConfig& config, LinearWeights weights) {
  const int bytes = linear_input_bytes(config, weights) + 2 * linear_part_bytes(config, weights, 2);
  const int multiple = config.block_m == 1 ? 128 : 1024;
  return (bytes + multiple - 1) / multiple * multiple;
}
// Floats of the warps' partial sums of a pass.
constexpr int linear_partials(const KernelConfig& config) {
  return config.num_warps * config.block_m * config.block_n;
}
// slots | partial sums of two passes | one barrier a slot, and one each for the sums
constexpr int linear_smem_bytes(const KernelConfig& config, LinearWeights weights) {
  return kLinearShares * config.num_stages * (linear_slot_bytes(config, weights) + 8) +
         2 * (4 * linear_partials(config) + 8);
}

// Rows of W that one output takes.
constexpr int linear_rows_per_output(LinearEpilogue epilogue) {
  return epilogue == LinearEpilogue::kGeglu || epilogue == LinearEpilogue::kSwiglu ? 2 : 1;
}

}  // namespace attune
