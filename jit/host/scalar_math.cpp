#include "jit/host/scalar_math.h"

#include <bit>
#include <cmath>

namespace attune::host {

namespace {

constexpr uint32 kSign = 0x80000000u;
constexpr uint32 kExponent = 0x7f800000u;
constexpr float kNan = std::bit_cast<float>(0x7fffffffu);

// Subnormal numbers become zero of the same sign.
float flush(float x) {
  const uint32 bits = std::bit_cast<uint32>(x);
  return (bits & kExponent) == 0 ? std::bit_cast<float>(bits & kSign) : x;
}

uint32 round_to_bf16(float x) {
  const uint32 bits = std::bit_cast<uint32>(x);
  if ((bits & ~kSign) > kExponent) return 0x7fff;
  // Half of the last kept bit, a little less when that bit is 0: ties go to even.
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

}  // namespace

// All in double: its rounding errors are 2^-29 of a float's last bit, so the second rounding, to
// float, is the correct one but for about one argument in 2^28.
float ex2(float x) {
  if (std::isnan(x)) return kNan;
  return flush(static_cast<float>(std::exp2(static_cast<double>(flush(x)))));
}

float lg2(float x) {
  x = flush(x);
  if (std::isnan(x) || x < 0) return kNan;
  return static_cast<float>(std::log2(static_cast<double>(x)));
}

float rcp(float x) {
  if (std::isnan(x)) return kNan;
  return flush(static_cast<float>(1.0 / static_cast<double>(flush(x))));
}

float tanh(float x) {
  if (std::isnan(x)) return kNan;
  return static_cast<float>(std::tanh(static_cast<double>(x)));
}

uint32 cvt_bf16x2(float low, float high) { return round_to_bf16(low) | round_to_bf16(high) << 16; }

}  // namespace attune::host
