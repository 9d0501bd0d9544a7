// Operands of one tensor-core product, C [m, n] + A [m, 16] * B [16, n], made to show how the
// hardware sums.
#pragma once

#include <string>
#include <vector>

#include "tests/conformance/random.h"

namespace attune::conformance {

constexpr int kDepth = 16;  // products of one instruction

struct Operands {
  int m = 0, n = 0;
  std::vector<std::uint16_t> a;  // [m, 16]
  std::vector<std::uint16_t> b;  // [n, 16]: columns of B
  std::vector<float> c;          // [m, n]

  Operands(int rows, int columns);
  void set_a(int row, int k, float value);
  void set_b(int column, int k, float value);
  float& c_at(int row, int column) { return c[static_cast<std::size_t>(row * n + column)]; }
};

struct Pattern {
  std::string name;
  // `index` counts the tiles of the pattern.
  void (*fill)(Random& random, int index, Operands& operands);
  // Outputs are kept, so patterns whose sums say little in many bytes have few tiles.
  int num_tiles = 96;
};

const std::vector<Pattern>& patterns();

}  // namespace attune::conformance
