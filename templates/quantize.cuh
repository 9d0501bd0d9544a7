// Packs rows of bf16 into 4 bits a number (linear_config.h): groups of 32 columns, symmetric, the
// largest magnitude of a group at 7.
// Grid     (panels of a row, rows). Threads: a warp. Four lanes have a group, a lane 8 columns.
// Columns  behind the last one count as 0.
#pragma once

#include "templates/device/bf16.cuh"
#include "templates/device/ptx.cuh"
#include "templates/linear_config.h"
#include "templates/model_params.h"

namespace attune {

constexpr float kInt4Most = 7.0f;

__device__ __forceinline__ void quantize_int4(const QuantizeParams& p) {
  const int lane = threadIdx.x;
  const int panel = blockIdx.x;
  const int64 row = blockIdx.y + static_cast<int64>(p.first_row);
  const int column = panel * kInt4Columns + lane * 8;
  float values[8] = {};
  if (column < p.in_features) load_bf16(values, p.rows + row * p.in_features + column);
  float most = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) most = fmaxf(most, fabsf(values[i]));
  most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
  most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
  // The scale as it is stored is the one that numbers are rounded by.
  const float scale = round_bf16(__fdiv_rn(most, kInt4Most));
  uint32 word = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float steps = scale > 0.0f ? __fdiv_rn(values[i], scale) : 0.0f;
    // Adding 1.5 * 2^23 rounds to an integer, whose low bits are those of the sum.
    const float number = fminf(fmaxf(steps, -kInt4Most), kInt4Most) + kInt4Zero;
    const uint32 bits = __float_as_uint(__fadd_rn(number, 12582912.0f)) & 15u;
    word |= bits << (i / 2 * 4 + i % 2 * 16);
  }
  unsigned char* const to = static_cast<unsigned char*>(p.packed) +
                            (static_cast<int64>(panel) * p.num_rows + row) * kInt4RowBytes;
  const int group = lane / 4;
  *reinterpret_cast<uint32*>(to + (lane % 4 + group / 4 * 4) * 16 + group % 4 * 4) = word;
  if (lane % 4 == 0) {
    *reinterpret_cast<uint16*>(to + kInt4ScalesOffset + group * kBytesPerElement) =
        static_cast<uint16>(__float_as_uint(scale) >> 16);
  }
}

}  // namespace attune
