#include "tests/conformance/case.h"
#include "tests/conformance/operands.h"

namespace attune::conformance {
namespace {

constexpr int kRows = 16;
constexpr int kColumns = 8;
constexpr int kWarpsPerCta = 4;
constexpr int kLanes = 32;

std::uint32_t pair_of(const std::vector<std::uint16_t>& values, int row, int k) {
  const auto at = static_cast<std::size_t>(row * kDepth + k);
  return values[at] | static_cast<std::uint32_t>(values[at + 1]) << 16;
}

// The fragments of lane l: group l / 4 is its row or column, pairs start at 2 * (l % 4).
void append_fragments(const Operands& o, Words* words) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane / 4;
    const int k = 2 * (lane % 4);
    for (const int part : {0, 1, 2, 3}) {
      words->push_back(pair_of(o.a, group + 8 * (part % 2), k + 8 * (part / 2)));
    }
    words->push_back(pair_of(o.b, group, k));
    words->push_back(pair_of(o.b, group, k + 8));
    for (const int part : {0, 1, 2, 3}) {
      const int row = group + 8 * (part / 2);
      const auto at = static_cast<std::size_t>(row * kColumns + k + part % 2);
      words->push_back(std::bit_cast<std::uint32_t>(o.c[at]));
    }
  }
}

Case mma_case(const Pattern& pattern) {
  Case one;
  one.name = pattern.name;
  one.kernel = "mma";
  one.launch.grid.x = static_cast<unsigned>(pattern.num_tiles / kWarpsPerCta);
  one.launch.block.x = kWarpsPerCta * kLanes;
  one.num_outputs = static_cast<std::size_t>(pattern.num_tiles) * kRows * kColumns;
  one.inputs = [fill = pattern.fill, num_tiles = pattern.num_tiles](Random& random) {
    Words words;
    for (int tile = 0; tile < num_tiles; ++tile) {
      Operands operands(kRows, kColumns);
      fill(random, tile, operands);
      append_fragments(operands, &words);
    }
    return words;
  };
  return one;
}

}  // namespace

Group mma_group() {
  Group group{"mma", {}};
  for (const Pattern& pattern : patterns()) group.cases.push_back(mma_case(pattern));
  return group;
}

}  // namespace attune::conformance
