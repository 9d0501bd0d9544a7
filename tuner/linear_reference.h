// Linear layers on the CPU in double: the judge of their kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "templates/problem.h"

namespace attune {

constexpr const char* kLinearReferenceName = "linear-cpu-double-1";

// Rows of W repeat after so many, so that every output of a large layer is compared although few are
// computed. A prime above the rows of a box: no two rows of one pass are alike, and a row that is taken
// for another one shows unless they are a multiple of it apart. Where an expert's rows are a multiple of it
// the next prime takes its place, or all experts were alike.
constexpr int kLinearPeriod = 257, kOtherPeriod = 263;

// x of experts' second layers repeats too: row r of it is that of row r % kInputPeriod. A prime above
// kMaxLinearTokens, so a token has another x in each entry nearby.
constexpr int kInputPeriod = 17;

// W and x of a problem as host values, W of all experts. bf16 is held as its 16 bits.
struct LinearInputs {
  Problem problem;
  int num_rows = 0;                  // of W before they repeat: all, or kLinearPeriod
  int num_inputs = 0;                // of x: linear_tokens, or kInputPeriod
  std::vector<std::uint16_t> input;  // [num_inputs, in_features]
  std::vector<std::uint16_t> rows;   // bf16 [num_rows, in_features]; empty where they are packed
  std::vector<std::byte> packed;     // [panels, num_rows, kInt4RowBytes] (linear_config.h)
};
// `seed` fixes the data.
LinearInputs linear_inputs(const Problem& problem, std::uint64_t seed);

// All of W as it lies in memory, from byte `begin` on: fills `to`.
void fill_weights(const LinearInputs& inputs, std::size_t begin, std::vector<std::byte>* to);

// One output before its last rounding, and how far a right kernel may be from it.
struct LinearOutput {
  double value = 0;
  double tolerance = 0;
};

// The sums of all different rows of x and of W.
class LinearReference {
 public:
  // Uses `num_threads` threads (0: all cores).
  explicit LinearReference(const LinearInputs& inputs, int num_threads = 0);

  // Of a row of x and of an expert's outputs (0: the layer is not one of experts).
  LinearOutput output(int input, int output, float softcap, int expert = 0) const;

 private:
  struct Sum {
    double value = 0;
    double size = 0;  // the root of the products' squares: what the value would be by chance
  };
  const Sum& sum(int input, int row) const;

  LinearShape shape_;
  int num_rows_, num_inputs_;
  std::vector<Sum> sums_;  // [num_inputs, num_rows]
};

}  // namespace attune
