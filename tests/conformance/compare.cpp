#include "tests/conformance/compare.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "common/error.h"

namespace attune::conformance {
namespace {

constexpr double kSmallest = 0x1p-126;  // below it results are flushed to zero
constexpr double kLargest = std::numeric_limits<float>::max();

double flushed(std::uint32_t bits) {
  const float value = std::bit_cast<float>(bits);
  return std::fabs(value) < static_cast<float>(kSmallest) ? std::copysign(0.0, value) : value;
}

struct Bounded {
  double exact;
  double error;  // largest, absolute
};

// The documented errors of PTX ISA 9.0: ex2 within 2 ulp, lg2 within 2^-22 absolute between 0.5 and
// 2 and relative elsewhere, rcp within 1 ulp.
Bounded bound_of(Judge judge, std::uint32_t input) {
  const double x = flushed(input);
  if (judge == Judge::kExp2) {
    const double exact = std::exp2(x);
    return {exact, exact * 0x1p-22};
  }
  if (judge == Judge::kLog2) {
    const double exact = std::log2(x);
    return {exact, x > 0.5 && x < 2 ? 0x1p-22 : std::fabs(exact) * 0x1p-22};
  }
  const double exact = 1 / x;
  return {exact, std::fabs(exact) * 0x1p-23};
}

bool is_within(const Bounded& bound, std::uint32_t bits) {
  const double value = std::bit_cast<float>(bits);
  if (std::isnan(bound.exact)) return std::isnan(value);
  if (std::isnan(value)) return false;
  if (std::isinf(value)) {
    return value * bound.exact > 0 && std::fabs(bound.exact) + bound.error >= kLargest;
  }
  if (value == 0 && std::fabs(bound.exact) <= kSmallest * (1 + 0x1p-20)) {
    return std::signbit(value) == std::signbit(bound.exact);
  }
  return std::fabs(value - bound.exact) <= bound.error;
}

bool is_nan(std::uint32_t bits) { return (bits & 0x7fffffffU) > 0x7f800000U; }

bool is_same(Judge judge, std::uint32_t expected, std::uint32_t actual, std::uint32_t input) {
  if (expected == actual) return true;
  if (judge == Judge::kBits) return false;
  if (is_nan(expected) && is_nan(actual)) return true;
  if (judge == Judge::kNan) return false;
  const Bounded bound = bound_of(judge, input);
  return is_within(bound, expected) && is_within(bound, actual);
}

std::uint32_t word_at(std::span<const std::byte> bytes, std::size_t i) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + 4 * i, 4);
  return word;
}

}  // namespace

Comparison compare(const Group& group, const Case& one, std::span<const std::byte> expected,
                   std::span<const std::byte> actual) {
  if (expected.size() != actual.size()) {
    throw InvalidArgument("outputs of different sizes",
                          fmt::format("case={}/{} expected={} actual={}", group.name, one.name,
                                      expected.size(), actual.size()));
  }
  const bool is_approximate = one.judge != Judge::kBits && one.judge != Judge::kNan;
  const Words inputs = is_approximate ? inputs_of(group, one) : Words();
  Comparison result;
  result.num_words = expected.size() / 4;
  for (std::size_t i = 0; i < result.num_words; ++i) {
    const std::uint32_t want = word_at(expected, i);
    const std::uint32_t got = word_at(actual, i);
    if (is_same(one.judge, want, got, is_approximate ? inputs.at(i) : 0)) continue;
    if (result.num_mismatches++ == 0) {
      result.first = fmt::format("output {}: expected {:08x}, got {:08x}", i, want, got);
      if (is_approximate) result.first += fmt::format(" for {:08x}", inputs[i]);
    }
  }
  return result;
}

}  // namespace attune::conformance
