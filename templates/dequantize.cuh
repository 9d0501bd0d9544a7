// Rows of bf16 of packed rows (linear_config.h): (n - 8) * scale, rounded.
// Grid     (panels of a row, blocks of kDequantizeRows rows). Threads: a warp for every
//          kDequantizeRowsPerWarp rows, a lane 8 columns of each.
// Sync     griddepcontrol_wait: what read the rows before is done.
#pragma once

#include "templates/config.h"
#include "templates/device/bf16.cuh"
#include "templates/device/ptx.cuh"
#include "templates/linear_config.h"
#include "templates/model_config.h"
#include "templates/model_params.h"

namespace attune {

__device__ __forceinline__ void dequantize_int4(const DequantizeParams& p) {
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const int lane = threadIdx.x % kWarpSize;
  const int panel = blockIdx.x;
  const int first = blockIdx.y * kDequantizeRows + threadIdx.x / kWarpSize * kDequantizeRowsPerWarp;
  const int column = panel * kInt4Columns + lane * 8;
  if (column >= p.in_features) return;
  const int group = lane / 4;
  const unsigned char* const from =
      static_cast<const unsigned char*>(p.packed) +
      (static_cast<int64>(panel) * p.num_rows + first) * kInt4RowBytes;
  uint32 words[kDequantizeRowsPerWarp];
  uint32 scales[kDequantizeRowsPerWarp];
#pragma unroll
  for (int i = 0; i < kDequantizeRowsPerWarp; ++i) {
    if (first + i >= p.num_rows) break;
    const unsigned char* const row = from + i * kInt4RowBytes;
    words[i] =
        *reinterpret_cast<const uint32*>(row + (lane % 4 + group / 4 * 4) * 16 + group % 4 * 4);
    scales[i] =
        *reinterpret_cast<const uint16*>(row + kInt4ScalesOffset + group * kBytesPerElement);
  }
#pragma unroll
  for (int i = 0; i < kDequantizeRowsPerWarp; ++i) {
    if (first + i >= p.num_rows) break;
    const float scale = __uint_as_float(scales[i] << 16);
    float values[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const uint32 number = words[i] >> (j / 2 * 4 + j % 2 * 16) & 15u;
      values[j] = static_cast<float>(static_cast<int>(number) - kInt4Zero) * scale;
    }
    store_bf16(p.rows + (first + i) * static_cast<int64>(p.in_features) + column, values);
  }
}

}  // namespace attune
