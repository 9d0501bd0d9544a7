#include "jit/host/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "jit/host/tensor_core_avx2.h"

namespace attune::host {

namespace {

constexpr uint32 kCanonicalNan = 0x7fffffff;
constexpr uint32 kInfinity = 0x7f800000;
constexpr int kBf16Fraction = 7;
constexpr int kFloatFraction = 23;
constexpr int kLeastExponent = -126;  // of normal numbers; subnormal ones count with it too

// significand * 2^exponent with a significand of kind::kFraction fraction bits, or a special.
struct Number {
  std::int64_t significand;  // magnitude
  int exponent;
  bool negative, infinite, nan;
};

Number unpack(uint32 bits, int fraction_bits) {
  const uint32 field = bits >> fraction_bits & 0xff;
  const uint32 fraction = bits & ((1u << fraction_bits) - 1);
  const bool negative = bits >> (fraction_bits + 8) & 1;
  if (field == 0xff) return {0, 0, negative, fraction == 0, fraction != 0};
  if (field == 0) return {fraction, kLeastExponent, negative, false, false};
  return {fraction | 1u << fraction_bits, static_cast<int>(field) - 127, negative, false, false};
}

// Keeps sign and specials of a product. 0 * inf is NaN.
Number product(const Number& a, const Number& b) {
  const bool infinite = a.infinite || b.infinite;
  const bool zero = (!a.infinite && a.significand == 0) || (!b.infinite && b.significand == 0);
  return {a.significand * b.significand, a.exponent + b.exponent, a.negative != b.negative,
          infinite, a.nan || b.nan || (infinite && zero)};
}

// magnitude * 2^exponent truncated to fp32.
float truncate_to_float(bool negative, std::uint64_t magnitude, int exponent) {
  const uint32 sign = negative ? 0x80000000u : 0;
  if (magnitude == 0) return std::bit_cast<float>(sign);
  const int top = static_cast<int>(std::bit_width(magnitude)) - 1;
  const int last = std::max(top + exponent, kLeastExponent) - kFloatFraction;  // kept bit
  const int shift = last - exponent;
  if (shift >= 64) return std::bit_cast<float>(sign);
  const std::uint64_t kept = shift >= 0 ? magnitude >> shift : magnitude << -shift;
  // The implicit bit of `kept` carries into the exponent field; subnormal numbers have none.
  const std::int64_t bits = (std::int64_t{last + 149} << kFloatFraction) + std::int64_t(kept);
  return std::bit_cast<float>(sign | static_cast<uint32>(std::min<std::int64_t>(bits, kInfinity)));
}

// trunc(magnitude of x / 2^(largest - kept)), signed.
std::int64_t align(const Number& x, int fraction_bits, int largest, int kept) {
  const int shift = kept - fraction_bits - (largest - x.exponent);
  if (shift <= -64) return 0;
  const std::int64_t magnitude = shift >= 0 ? x.significand << shift : x.significand >> -shift;
  return x.negative ? -magnitude : magnitude;
}

struct Sum {
  Number addends[kMmaDepth + 1];  // c first
  int count = 0;
};

// One sum of a block: specials, then alignment, exact sum and truncation.
float fused_sum(const Sum& sum, const TensorCoreModel& model) {
  bool nan = false, plus = false, minus = false;
  int largest = model.zero_exponent;
  for (int i = 0; i < sum.count; ++i) {
    const Number& x = sum.addends[i];
    nan |= x.nan;
    plus |= x.infinite && !x.negative;
    minus |= x.infinite && x.negative;
    if (x.significand != 0) largest = std::max(largest, x.exponent);
  }
  if (nan || (plus && minus)) return std::bit_cast<float>(kCanonicalNan);
  if (plus || minus) return std::bit_cast<float>(kInfinity | (minus ? 0x80000000u : 0));
  std::int64_t total = 0;
  for (int i = 0; i < sum.count; ++i) {
    const int fraction_bits = i == 0 ? kFloatFraction : 2 * kBf16Fraction;
    total += align(sum.addends[i], fraction_bits, largest, model.fraction_bits);
  }
  return truncate_to_float(total < 0, static_cast<std::uint64_t>(total < 0 ? -total : total),
                           largest - model.fraction_bits);
}

// Fragments are gathered in whole vectors: loads of 16 bytes from four stores of 4 stall.
using Words = uint32 __attribute__((vector_size(16)));

Words load(const void* from) {
  Words words;
  std::memcpy(&words, from, sizeof words);
  return words;
}

void store(Words words, void* to) { std::memcpy(to, &words, sizeof words); }

// Rows `row` and `row` + 8 of A from the four lanes that hold them, a pair of columns each.
void gather_a(const MmaLane* quad, uint16* row, uint16* row_8) {
  const Words x0 = load(quad[0].a), x1 = load(quad[1].a);
  const Words x2 = load(quad[2].a), x3 = load(quad[3].a);
  const Words low_01 = __builtin_shufflevector(x0, x1, 0, 4, 1, 5);
  const Words low_23 = __builtin_shufflevector(x2, x3, 0, 4, 1, 5);
  const Words high_01 = __builtin_shufflevector(x0, x1, 2, 6, 3, 7);
  const Words high_23 = __builtin_shufflevector(x2, x3, 2, 6, 3, 7);
  store(__builtin_shufflevector(low_01, low_23, 0, 1, 4, 5), row);
  store(__builtin_shufflevector(low_01, low_23, 2, 3, 6, 7), row_8);
  store(__builtin_shufflevector(high_01, high_23, 0, 1, 4, 5), row + 8);
  store(__builtin_shufflevector(high_01, high_23, 2, 3, 6, 7), row_8 + 8);
}

void gather_sums(const MmaLane* quad, float* row, float* row_8) {
  for (int i = 0; i < 4; i += 2) {
    const Words x = load(quad[i].d), y = load(quad[i + 1].d);
    store(__builtin_shufflevector(x, y, 0, 1, 4, 5), row + 2 * i);
    store(__builtin_shufflevector(x, y, 2, 3, 6, 7), row_8 + 2 * i);
  }
}

}  // namespace

float multiply_add(float c, const uint16* a, const uint16* b, const TensorCoreModel& model) {
  for (int first = 0; first < kMmaDepth; first += model.block_length) {
    Sum sum;
    sum.addends[sum.count++] = unpack(std::bit_cast<uint32>(c), kFloatFraction);
    for (int k = first; k < first + model.block_length; ++k) {
      sum.addends[sum.count++] = product(unpack(a[k], kBf16Fraction), unpack(b[k], kBf16Fraction));
    }
    c = fused_sum(sum, model);
  }
  return c;
}

void multiply_tile_scalar(int rows, int n, const uint16 (*a)[kMmaDepth],
                          const uint16 (*b)[kMmaDepth], float* d, const TensorCoreModel& model) {
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < n; ++column) {
      float& element = d[row * n + column];
      element = multiply_add(element, a[row], b[column], model);
    }
  }
}

void multiply_tile(int rows, int n, const uint16 (*a)[kMmaDepth], const uint16 (*b)[kMmaDepth],
                   float* d, const TensorCoreModel& model) {
  static const bool avx2 = avx2_supported();
  if (avx2) {
    multiply_tile_avx2(rows, n, a, b, d, model);
  } else {
    multiply_tile_scalar(rows, n, a, b, d, model);
  }
}

void mma_m16n8k16_bf16(const MmaLane (&lanes)[32], const TensorCoreModel& model) {
  constexpr int kRows = 16, kColumns = 8;
  alignas(32) uint16 a[kRows][kMmaDepth];
  alignas(32) uint16 b[kColumns][kMmaDepth];
  alignas(32) float d[kRows][kColumns];
  for (int row = 0; row < kRows / 2; ++row) {
    const MmaLane* const quad = &lanes[row * 4];
    gather_a(quad, a[row], a[row + 8]);
    const Words b_low{quad[0].b0, quad[1].b0, quad[2].b0, quad[3].b0};
    const Words b_high{quad[0].b1, quad[1].b1, quad[2].b1, quad[3].b1};
    store(b_low, &b[row][0]);
    store(b_high, &b[row][8]);
    gather_sums(quad, d[row], d[row + 8]);
  }
  multiply_tile(kRows, kColumns, a, b, &d[0][0], model);
  for (int lane = 0; lane < 32; ++lane) {
    const int row = lane / 4, pair = lane % 4 * 2;
    std::memcpy(lanes[lane].d, &d[row][pair], 8);
    std::memcpy(lanes[lane].d + 2, &d[row + 8][pair], 8);
  }
}

}  // namespace attune::host
