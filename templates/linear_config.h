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

constexpr int kLinearColumns = 64;  // of a slot: 128 bytes of a row
constexpr int kLinearRowBytes = kLinearColumns * kBytesPerElement;
// The bits of an output depend on how many warps share its columns, so it is no choice.
constexpr int kLinearWarps = 8;
constexpr int kMaxLinearTokens = 16;

// KernelConfig of this template: block_m tokens (8 or 16); block_n rows of W in a slot, gate and up
// rows both counted; num_stages slots of each warp; num_warps is kLinearWarps.
constexpr int linear_slot_bytes(const KernelConfig& config) {
  return (config.block_n + config.block_m) * kLinearRowBytes;
}
// Floats of the warps' partial sums.
constexpr int linear_partials(const KernelConfig& config) {
  return config.num_warps * config.block_m * config.block_n;
}
// slots | partial sums | one barrier a slot
constexpr int linear_smem_bytes(const KernelConfig& config) {
  return config.num_warps * config.num_stages * (linear_slot_bytes(config) + 8) +
         4 * linear_partials(config);
}

// Rows of W that one output takes.
constexpr int linear_rows_per_output(LinearEpilogue epilogue) {
  return epilogue == LinearEpilogue::kGeglu || epilogue == LinearEpilogue::kSwiglu ? 2 : 1;
}

}  // namespace attune
