#include "tests/conformance/random.h"

#include <numeric>
#include <utility>

namespace attune::conformance {

// splitmix64. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
std::uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15;
  std::uint64_t x = state_;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

int Random::between(int low, int high) {
  const auto count = static_cast<std::uint64_t>(high - low) + 1;
  return low + static_cast<int>((next() >> 32) * count >> 32);
}

float Random::normal() {
  int sum = 0;
  for (int i = 0; i < 12; ++i) sum += static_cast<int>(next() >> 48);
  return static_cast<float>((static_cast<double>(sum) - 12 * 32767.5) / 65536.0);
}

float Random::wide(int low, int high, int mantissa_bits) {
  const std::uint32_t mantissa = (bits() >> 9) & ~((1U << (23 - mantissa_bits)) - 1);
  const bool negative = coin();
  return make_float(negative, between(low, high), mantissa);
}

std::vector<int> Random::permutation(int count) {
  std::vector<int> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (int i = count - 1; i > 0; --i) {
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(between(0, i))]);
  }
  return order;
}

float make_float(bool negative, int exponent, std::uint32_t mantissa) {
  const std::uint32_t sign = negative ? 0x80000000U : 0U;
  if (exponent > 127) return std::bit_cast<float>(sign | 0x7f800000U);
  if (exponent >= -126) {
    return std::bit_cast<float>(sign | static_cast<std::uint32_t>(exponent + 127) << 23 | mantissa);
  }
  const int shift = -126 - exponent;
  return std::bit_cast<float>(sign | (shift > 23 ? 0U : (0x800000U | mantissa) >> shift));
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

const std::vector<std::uint32_t>& special_floats() {
  static const std::vector<std::uint32_t> kValues = {
      0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x00000100, 0x007fffff, 0x807fffff,
      0x00800000, 0x80800000, 0x00800001, 0x00ffffff, 0x01000000, 0x33800000, 0x34000000,
      0x3e800000, 0x3f000000, 0x3f7fffff, 0x3f800000, 0x3f800001, 0xbf800000, 0x3fffffff,
      0x40000000, 0x40490fdb, 0x4b000000, 0x4b7fffff, 0x4b800000, 0x4f000000, 0x5f000000,
      0x7e800000, 0x7effffff, 0x7f000000, 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff, 0xff7fffff,
      0x7f800000, 0xff800000, 0x7f800001, 0x7fbfffff, 0x7fc00000, 0x7fffffff, 0xffc00000,
      0xffffffff};
  return kValues;
}

}  // namespace attune::conformance
