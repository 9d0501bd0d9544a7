#include "tests/conformance/case.h"

namespace attune::conformance {
namespace {

constexpr unsigned kLanes = 32;
constexpr int kRows = 64;  // of 16 bytes
constexpr int kWords = 4 * kRows;
constexpr int kForms = 6;
constexpr int kCtas = 4;

Case warp_case(std::string name, unsigned num_ctas) {
  Case one;
  one.kernel = std::move(name);
  one.name = one.kernel;
  one.launch.grid.x = num_ctas;
  one.launch.block.x = kLanes;
  one.launch.smem_bytes = kWords * 4;
  return one;
}

// Every 16-bit element is its own index, so that a wrong place shows where the element came from.
Case ldmatrix_case() {
  Case one = warp_case("ldmatrix", kCtas);
  one.num_outputs = kCtas * kForms * kLanes * 4;
  one.inputs = [](Random& random) {
    Words words;
    for (int cta = 0; cta < kCtas; ++cta) {
      for (std::uint32_t i = 0; i < kWords; ++i) words.push_back(2 * i | (2 * i + 1) << 16);
      for (int form = 0; form < kForms; ++form) {
        const std::vector<int> rows = random.permutation(kRows);
        for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
          // First in order, then at random, then all at one row.
          const std::uint32_t row = cta == 0   ? lane
                                    : cta == 1 ? static_cast<std::uint32_t>(rows[0])
                                               : static_cast<std::uint32_t>(rows[lane]);
          words.push_back(row);
        }
      }
    }
    return words;
  };
  return one;
}

Case stmatrix_case() {
  Case one = warp_case("stmatrix", kCtas);
  one.needs = Needs::kSm90;
  one.num_outputs = kCtas * kForms * kWords;
  one.inputs = [](Random& random) {
    Words words;
    for (int cta = 0; cta < kCtas; ++cta) {
      for (int form = 0; form < kForms; ++form) {
        const std::vector<int> rows = random.permutation(kRows);
        for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
          for (std::uint32_t i = 0; i < 4; ++i) {
            const std::uint32_t low = (lane * 4 + i) * 2;
            words.push_back(low | (low + 1) << 16);
          }
          words.push_back(cta == 0 ? lane : static_cast<std::uint32_t>(rows[lane]));
        }
      }
    }
    return words;
  };
  return one;
}

Case movmatrix_case() {
  Case one = warp_case("movmatrix", 2);
  one.num_outputs = 2 * kLanes;
  one.inputs = [](Random& random) {
    Words words;
    for (std::uint32_t lane = 0; lane < kLanes; ++lane)
      words.push_back(2 * lane | (2 * lane + 1) << 16);
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) words.push_back(random.bits());
    return words;
  };
  return one;
}

}  // namespace

Group matrix_group() { return {"matrix", {ldmatrix_case(), movmatrix_case(), stmatrix_case()}}; }

}  // namespace attune::conformance
