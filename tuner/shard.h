// One of several equal shares of a preset, for machines that tune it together.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "templates/problem.h"

namespace attune {

struct Shard {
  std::size_t idx = 0;  // from 0
  std::size_t count = 1;
  // "0/4". Throws InvalidArgument.
  static Shard parse(std::string_view text);
  friend bool operator==(const Shard&, const Shard&) = default;
};

// What a share has to do: problems that are measured together stay together, and shares have about
// the same expected time. Depends on the problems alone, not on their order, the machine or the
// cache, so every machine comes to the same division.
std::vector<Problem> problems_of_shard(const std::vector<Problem>& problems, const Shard& shard);

}  // namespace attune
