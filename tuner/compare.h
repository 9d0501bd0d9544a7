// The output of one launch against the reference.
#pragma once

#include <cstddef>
#include <span>
#include <variant>

#include "templates/params.h"
#include "tuner/verify.h"

namespace attune {

// Output memory is filled with this before a launch: NaN as bf16 and as float.
constexpr unsigned char kPoison = 0xff;

struct CaseErrors {
  double relative_l2 = 0;     // over the case
  double worst_sequence = 0;  // relative L2
  double max_abs = 0;
};

// Compares `out` (with the strides of `params`, padding still poisoned) and `lse` (floats) row by
// row, sequence by sequence and as a whole. A rejection names the first sequence that is wrong.
std::variant<CaseErrors, Rejection> compare(const VerifyCase& expected,
                                            const AttentionParams& params,
                                            std::span<const std::byte> out,
                                            std::span<const std::byte> lse);

}  // namespace attune
