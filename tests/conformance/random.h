// Random numbers that are the same on every machine: integers, and floats made without the math
// library.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace attune::conformance {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next();
  std::uint32_t bits() { return static_cast<std::uint32_t>(next() >> 32); }
  int between(int low, int high);  // both included
  bool coin() { return (next() >> 63) != 0; }
  float normal();  // deviation 1, a sum of twelve uniform numbers
  // A float of a random sign and mantissa of `mantissa_bits` bits, with an exponent from `low` to
  // `high`.
  float wide(int low, int high, int mantissa_bits = 23);
  // 0 to count - 1 in random order.
  std::vector<int> permutation(int count);

 private:
  std::uint64_t state_;
};

// +-2^exponent * (1 + mantissa / 2^23); subnormal below 2^-126.
float make_float(bool negative, int exponent, std::uint32_t mantissa = 0);

// Nearest even; NaN stays NaN.
std::uint16_t to_bf16(float value);
inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Values at the edges of what a float can be.
const std::vector<std::uint32_t>& special_floats();

}  // namespace attune::conformance
