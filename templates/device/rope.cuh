// Sine and cosine of rotary angles, and the rotation of a pair. Every sum and product is rounded by
// name, so that all compilers give the same bits.
#pragma once

#include "templates/int_types.h"

namespace attune {

struct SinCos {
  float sin;
  float cos;
};

// Of an angle from 0 to some millions: within 2^-23, and 2 ulp near the zeros too, for the angles
// of positions below 262144 (tests/support/rope_run.h). Without a table in local memory, which
// the toolkit's functions have for large angles.
__device__ __forceinline__ SinCos sin_cos(float angle) {
  // Cody and Waite: angle - n * pi/2 with pi/2 in three parts. The first difference is exact, n has
  // 18 bits, and the second and third round only what is left, so nothing is lost by cancellation.
  constexpr float kTwoOverPi = 0.636619747f;
  constexpr float kHalfPi = 0x1.921fb6p+0f;
  constexpr float kHalfPiMiddle = -0x1.777a5cp-25f;
  constexpr float kHalfPiLow = -0x1.ee59dap-50f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: in a sum with it the last bit is worth 1
  const float rounded = __fmaf_rn(angle, kTwoOverPi, kRound);
  const float n = __fsub_rn(rounded, kRound);
  const uint32 quadrant = __float_as_uint(rounded);  // its last two bits
  float x = __fmaf_rn(-n, kHalfPi, angle);
  x = __fmaf_rn(-n, kHalfPiMiddle, x);
  x = __fmaf_rn(-n, kHalfPiLow, x);

  // Minimax on [-pi/4, pi/4], refitted after each coefficient was rounded: 3.4e-9 and 1.1e-10.
  const float square = __fmul_rn(x, x);
  float sine = __fmaf_rn(square, -0x1.995d04p-13f, 0x1.11078ap-7f);
  sine = __fmaf_rn(square, sine, -0x1.555546p-3f);
  sine = __fmaf_rn(__fmul_rn(x, square), sine, x);
  float cosine = __fmaf_rn(square, 0x1.99e0eep-16f, -0x1.6c0c1ap-10f);
  cosine = __fmaf_rn(square, cosine, 0x1.55554ap-5f);
  cosine = __fmaf_rn(__fmul_rn(square, square), cosine, __fmaf_rn(square, -0.5f, 1.0f));

  const bool swapped = (quadrant & 1) != 0;
  const float y = swapped ? cosine : sine;
  const float z = swapped ? sine : cosine;
  return {(quadrant & 2) != 0 ? -y : y, (quadrant + 1 & 2) != 0 ? -z : z};
}

// Turns the pair (low, high).
__device__ __forceinline__ void rotate(float& low, float& high, SinCos turn) {
  const float turned = __fmaf_rn(low, turn.cos, -__fmul_rn(high, turn.sin));
  high = __fmaf_rn(high, turn.cos, __fmul_rn(low, turn.sin));
  low = turned;
}

}  // namespace attune
