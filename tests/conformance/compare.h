// What a device gave against what the GPU gave.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "tests/conformance/case.h"

namespace attune::conformance {

struct Comparison {
  std::size_t num_words = 0;
  std::size_t num_mismatches = 0;
  std::string first;  // "output 17: expected 3f800000, got 3f800001"; empty without a mismatch
};

// Judges every output word of `one` as its Judge says.
Comparison compare(const Group& group, const Case& one, std::span<const std::byte> expected,
                   std::span<const std::byte> actual);

}  // namespace attune::conformance
