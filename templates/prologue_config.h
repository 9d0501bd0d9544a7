// Constants of prologue.cuh that its launch arithmetic shares. Compiled by the host compiler and by
// NVRTC.
#pragma once

#include "templates/config.h"

namespace attune {

constexpr int kPrologueMaxThreads = 128;

// Positions that sin_cos has been held against double at (device/rope.cuh).
constexpr int kMaxRopePositions = 262144;

// Rotary pairs that a lane of the prologue holds: loads of 16 bytes at head_dim 512.
constexpr int prologue_lane_pairs(int head_dim) { return head_dim < 128 ? 2 : head_dim / 64; }

// The inverses of unified_query_dim and unified_value_dim: columns of a head dimension, the second
// in the whole unified row. Eight dimensions from a multiple of 8 on stay together.
constexpr int unified_query_column(int dim) {
  if (dim < 64) return dim;
  return dim < 256 ? dim + 64 : dim < 320 ? dim - 192 : dim;
}
constexpr int unified_value_column(int dim) {
  const int column = dim < 64    ? dim + 384
                     : dim < 256 ? dim - 64
                     : dim < 320 ? dim + 192
                                 : dim - 128;
  return kUnifiedRotated + column;
}
constexpr bool unified_columns_agree() {
  for (int dim = 0; dim < kUnifiedHeadDim; ++dim) {
    if (unified_query_dim(unified_query_column(dim)) != dim) return false;
    if (unified_value_dim(unified_value_column(dim) - kUnifiedRotated) != dim) return false;
  }
  return true;
}
static_assert(unified_columns_agree());

constexpr int query_column(KvLayout layout, int dim) {
  return is_unified(layout) ? unified_query_column(dim) : dim;
}

}  // namespace attune
