#include "tests/conformance/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "common/error.h"

namespace attune::conformance {
namespace {

constexpr std::uint32_t kSign = 0x80000000;
constexpr std::uint32_t kSmallest = 0x00800000;  // below it numbers are flushed to zero

bool is_nan(std::uint32_t bits) { return (bits & ~kSign) > 0x7f800000U; }

double flushed(std::uint32_t bits) {
  return std::bit_cast<float>((bits & ~kSign) < kSmallest ? bits & kSign : bits);
}

// Floats in order, one ulp from the next; zero is the one below the smallest.
std::int64_t place(std::uint32_t bits) {
  const std::int64_t magnitude = std::max(bits & ~kSign, kSmallest - 1);
  return (bits & kSign) != 0 ? -magnitude : magnitude;
}

double exact_result(Judge judge, double x) {
  if (judge == Judge::kExp2) return std::exp2(x);
  return judge == Judge::kLog2 ? std::log2(x) : 1 / x;
}

// The documented errors of PTX ISA 9.1: ex2 within 2 ulp and rcp within 1 ulp of the correctly
// rounded result, lg2 within 2^-22, absolute between 0.5 and 2 and relative elsewhere.
bool is_within(Judge judge, std::uint32_t bits, std::uint32_t input) {
  const double x = flushed(input);
  const double exact = exact_result(judge, x);
  if (std::isnan(exact)) return is_nan(bits);
  if (judge == Judge::kLog2 && std::isfinite(exact)) {
    const double error = std::fabs(std::bit_cast<float>(bits) - exact);
    return error <= (x > 0.5 && x < 2 ? 1 : std::fabs(exact)) * 0x1p-22;  // not so for NaN
  }
  if (is_nan(bits)) return false;
  const auto rounded = std::bit_cast<std::uint32_t>(static_cast<float>(exact));
  return std::abs(place(bits) - place(rounded)) <= (judge == Judge::kExp2 ? 2 : 1);
}

bool is_same(Judge judge, std::uint32_t expected, std::uint32_t actual, std::uint32_t input) {
  if (expected == actual) return true;
  if (judge == Judge::kBits) return false;
  if (is_nan(expected) && is_nan(actual)) return true;
  if (judge == Judge::kNan) return false;
  return is_within(judge, expected, input) && is_within(judge, actual, input);
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
