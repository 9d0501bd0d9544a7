#include "tests/conformance/operands.h"

#include <cstddef>

namespace attune::conformance {
namespace {

constexpr float kInfinity = __builtin_inff();

template <typename Make>
void fill_ab(Operands& o, const Make& make) {
  for (int k = 0; k < kDepth; ++k) {
    for (int row = 0; row < o.m; ++row) o.set_a(row, k, make());
    for (int column = 0; column < o.n; ++column) o.set_b(column, k, make());
  }
}
template <typename Make>
void fill_c(Operands& o, const Make& make) {
  for (float& value : o.c) value = make();
}
void fill_zero(Operands& o) {
  fill_ab(o, [] { return 0.0f; });
  fill_c(o, [] { return 0.0f; });
}

void normal(Random& r, int, Operands& o) {
  fill_ab(o, [&] { return r.normal(); });
  fill_c(o, [&] { return r.normal(); });
}

void wide(Random& r, int, Operands& o) {
  fill_ab(o, [&] { return r.wide(-40, 40); });
  fill_c(o, [&] { return r.wide(-80, 80); });
}

void medium(Random& r, int, Operands& o) {
  fill_ab(o, [&] { return r.wide(-8, 8); });
  fill_c(o, [&] { return r.wide(-18, 18); });
}

// Products cancel in pairs, at random places; what is left is one small product and a small C.
void cancellation(Random& r, int, Operands& o) {
  const std::vector<int> order = r.permutation(kDepth);
  fill_c(o, [&] { return r.coin() ? 0.0f : r.wide(-30, 0); });
  for (int pair = 0; pair < kDepth / 2; ++pair) {
    const int first = order[static_cast<std::size_t>(2 * pair)];
    const int second = order[static_cast<std::size_t>(2 * pair + 1)];
    for (int row = 0; row < o.m; ++row) {
      const float value = r.wide(-2, 10, 7);
      o.set_a(row, first, value);
      o.set_a(row, second, pair == 0 && row % 2 == 0 ? r.wide(-20, -8, 7) : -value);
    }
    for (int column = 0; column < o.n; ++column) {
      const float value = r.wide(-2, 4, 7);
      o.set_b(column, first, value);
      o.set_b(column, second, value);
    }
  }
}

// C cancels the exact sum down to its last bits.
void cancelled_by_c(Random& r, int, Operands& o) {
  fill_ab(o, [&] { return r.wide(-3, 3, 7); });
  for (int row = 0; row < o.m; ++row) {
    for (int column = 0; column < o.n; ++column) {
      double sum = 0;
      for (int k = 0; k < kDepth; ++k) {
        sum += static_cast<double>(from_bf16(o.a[static_cast<std::size_t>(row * kDepth + k)])) *
               static_cast<double>(from_bf16(o.b[static_cast<std::size_t>(column * kDepth + k)]));
      }
      o.c_at(row, column) = -static_cast<float>(sum);
    }
  }
}

// Subnormal operands, products and sums.
void subnormal(Random& r, int index, Operands& o) {
  const int low = index % 2 == 0 ? -133 : -70;
  const int high = index % 2 == 0 ? -120 : -58;
  for (int k = 0; k < kDepth; ++k) {
    for (int row = 0; row < o.m; ++row) o.set_a(row, k, r.wide(low, high));
    for (int column = 0; column < o.n; ++column) {
      o.set_b(column, k, index % 2 == 0 ? r.wide(-6, 6) : r.wide(low, high));
    }
  }
  fill_c(o, [&] { return r.coin() ? r.wide(-149, -120) : 0.0f; });
}

void signed_zero(Random& r, int, Operands& o) {
  fill_ab(o, [&] {
    return r.between(0, 3) > 0 ? (r.coin() ? 0.0f : -0.0f) : (r.coin() ? 1.0f : -1.0f);
  });
  for (int row = 0; row < o.m; row += 2) {  // half of the rows are zeros alone
    for (int k = 0; k < kDepth; ++k) o.set_a(row, k, r.between(0, 3) > 0 ? -0.0f : 0.0f);
  }
  fill_c(o, [&] { return r.between(0, 3) > 0 ? (r.coin() ? 0.0f : -0.0f) : 1.0f; });
}

void negative_zero(Random&, int index, Operands& o) {
  fill_ab(o, [&] { return 1.0f; });
  for (int k = 0; k < kDepth; ++k) {
    for (int row = 0; row < o.m; ++row) o.set_a(row, k, row == k && index % 2 == 1 ? 0.0f : -0.0f);
  }
  fill_c(o, [] { return -0.0f; });
}

void infinite(Random& r, int, Operands& o) {
  fill_ab(o,
          [&] { return r.between(0, 63) == 0 ? (r.coin() ? kInfinity : -kInfinity) : r.normal(); });
  fill_c(o,
         [&] { return r.between(0, 31) == 0 ? (r.coin() ? kInfinity : -kInfinity) : r.normal(); });
  for (int row = 0; row < o.m; row += 4) o.set_a(row, r.between(0, 15), 0.0f);
}

void not_a_number(Random& r, int, Operands& o) {
  constexpr std::uint16_t kNans[] = {0x7f81, 0x7fc0, 0xff80 | 1, 0xffff, 0x7fff};
  normal(r, 0, o);
  for (int i = 0; i < 4; ++i) {
    o.a[static_cast<std::size_t>(r.between(0, o.m * kDepth - 1))] = kNans[r.between(0, 4)];
  }
  o.b[static_cast<std::size_t>(r.between(0, o.n * kDepth - 1))] = kNans[r.between(0, 4)];
  o.c_at(r.between(0, o.m - 1), r.between(0, o.n - 1)) =
      std::bit_cast<float>(0x7f800001U | r.bits());
}

void huge_c(Random& r, int index, Operands& o) {
  fill_ab(o, [&] { return r.wide(-8, 0); });
  fill_c(o, [&] { return r.wide(5 + index % 24, 10 + index % 24); });
}

void tiny_c(Random& r, int index, Operands& o) {
  fill_ab(o, [&] { return r.wide(-2, 2); });
  fill_c(o, [&] { return r.wide(-35 + index % 24, -30 + index % 24); });
}

void equal(Random& r, int, Operands& o) {
  const float a = r.wide(-3, 3);
  const float b = r.wide(-3, 3);
  const float c = r.wide(-3, 3);
  fill_ab(o, [&] { return a; });
  for (int k = 0; k < kDepth; ++k) {
    for (int column = 0; column < o.n; ++column) o.set_b(column, k, b);
  }
  fill_c(o, [&] { return c; });
}

// Row r has one product, at place (r + index) % 16; C is zero, or so large that the product is cut.
void single_product(Random& r, int index, Operands& o) {
  fill_zero(o);
  for (int row = 0; row < o.m; ++row) o.set_a(row, (row + index) % kDepth, r.wide(-2, 2));
  for (int column = 0; column < o.n; ++column) {
    for (int k = 0; k < kDepth; ++k) o.set_b(column, k, r.wide(-2, 2));
  }
  if (index % 2 == 1) fill_c(o, [&] { return r.wide(0, 26); });
}

// 1 or C, and far below it one or two products: how many bits behind the largest term are kept, and
// whether what is cut off still rounds. Row: exponent of the small product; column: its mantissa
// and sign, and a second one.
void sticky(Random& r, int index, Operands& o) {
  fill_zero(o);
  const int big = r.between(0, 15);
  const int small = (big + 1 + r.between(0, 14)) % kDepth;
  int second = (small + 1) % kDepth;
  if (second == big) second = (second + 1) % kDepth;
  const bool big_is_c = index % 2 == 1;
  for (int row = 0; row < o.m; ++row) {
    if (!big_is_c) o.set_a(row, big, index % 4 == 0 ? 1.0f : 1.9921875f);
    o.set_a(row, small, make_float(false, -19 - row % 16));
    o.set_a(row, second, make_float(false, -21 - row % 16 - index / 4 % 6));
  }
  for (int column = 0; column < o.n; ++column) {
    const bool negative = column % 2 == 1;
    o.set_b(column, big, 1.0f);
    o.set_b(column, small, make_float(negative, 0, column % 4 < 2 ? 0 : 0x7f0000));
    o.set_b(column, second, column % 8 < 4 ? 0.0f : (index / 2 % 2 == 0 ? 1.0f : -1.0f));
    for (int row = 0; row < o.m && big_is_c; ++row) {
      o.c_at(row, column) =
          make_float(index / 2 % 4 == 3, index / 8 % 3, index / 2 % 4 == 1 ? 0x7fffff : 0);
    }
  }
}

// Sixteen equal products far below C: are they cut off one by one or as a sum?
void many_small(Random& r, int index, Operands& o) {
  fill_c(o, [&] { return make_float(r.coin(), 0, index % 3 == 0 ? 0U : r.bits() >> 9); });
  for (int row = 0; row < o.m; ++row) {
    const float value = make_float(index % 2 == 1, -16 - row % 16, index % 4 < 2 ? 0 : 0x7f0000);
    for (int k = 0; k < kDepth; ++k) o.set_a(row, k, value);
  }
  for (int column = 0; column < o.n; ++column) {
    for (int k = 0; k < kDepth; ++k) o.set_b(column, k, k < 2 * (column % 8) + 2 ? 1.0f : 0.0f);
  }
}

// Large products cancel across the halves, quarters or neighbours of k; small ones survive only
// where they are summed apart from the large ones.
void grouping(Random& r, int index, Operands& o) {
  constexpr int kDistance[] = {8, 4, 2, 1};
  const int distance = kDistance[index % 4];
  const int scale = 18 + index / 4 % 12;
  for (int k = 0; k < kDepth; ++k) {
    const bool large = k == (index / 4) % kDepth || k == ((index / 4) ^ distance) % kDepth;
    const bool negative = k == ((index / 4) ^ distance) % kDepth;
    for (int row = 0; row < o.m; ++row) {
      o.set_a(row, k, large ? make_float(negative, scale) : r.wide(-1, 1));
    }
    for (int column = 0; column < o.n; ++column) o.set_b(column, k, large ? 1.0f : r.wide(-1, 1));
  }
  fill_c(o, [&] { return index % 8 < 4 ? 0.0f : r.normal(); });
}

// Around the largest float: sums that overflow on the way, or only at the end.
void overflow(Random& r, int index, Operands& o) {
  fill_ab(o, [&] { return r.wide(60, 63); });
  fill_c(o, [&] {
    return r.between(0, 2) == 0 ? make_float(r.coin(), 127, 0x7fffff) : r.wide(120, 127);
  });
  if (index % 2 == 1) {  // few products, so that sums stay near the limit
    for (int row = 0; row < o.m; ++row) {
      for (int k = 2; k < kDepth; ++k) o.set_a(row, k, 0.0f);
    }
  }
}

void any_bits(Random& r, int, Operands& o) {
  const auto finite = [&] {
    const std::uint32_t bits = r.bits();
    return (bits & 0x7f800000U) == 0x7f800000U ? bits & 0xbfffffffU : bits;
  };
  for (auto& value : o.a) value = static_cast<std::uint16_t>(finite() >> 16);
  for (auto& value : o.b) value = static_cast<std::uint16_t>(finite() >> 16);
  for (auto& value : o.c) value = std::bit_cast<float>(finite());
}

}  // namespace

Operands::Operands(int rows, int columns)
    : m(rows),
      n(columns),
      a(static_cast<std::size_t>(rows * kDepth)),
      b(static_cast<std::size_t>(columns * kDepth)),
      c(static_cast<std::size_t>(rows * columns)) {}

void Operands::set_a(int row, int k, float value) {
  a[static_cast<std::size_t>(row * kDepth + k)] = to_bf16(value);
}

void Operands::set_b(int column, int k, float value) {
  b[static_cast<std::size_t>(column * kDepth + k)] = to_bf16(value);
}

const std::vector<Pattern>& patterns() {
  static const std::vector<Pattern> kPatterns = {
      {"normal", normal},
      {"wide", wide},
      {"medium", medium},
      {"cancellation", cancellation, 128},
      {"cancelled_by_c", cancelled_by_c, 256},
      {"subnormal", subnormal},
      {"signed_zero", signed_zero, 128},
      {"negative_zero", negative_zero, 32},
      {"infinite", infinite},
      {"not_a_number", not_a_number},
      {"huge_c", huge_c},
      {"tiny_c", tiny_c},
      {"equal", equal, 256},
      {"single_product", single_product, 128},
      {"sticky", sticky, 384},
      {"many_small", many_small, 160},
      {"grouping", grouping, 192},
      {"overflow", overflow, 128},
      {"any_bits", any_bits, 128},
  };
  return kPatterns;
}

}  // namespace attune::conformance
