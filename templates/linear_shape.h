// What a linear layer computes.
#pragma once

#include <compare>
#include <string_view>

#include "templates/linear_config.h"

namespace attune {

// y[num_tokens, out_features] = epilogue(W x); of kGeglu and kSwiglu W has 2 * out_features rows.
struct LinearShape {
  int out_features = 0;
  int in_features = 0;
  LinearEpilogue epilogue = LinearEpilogue::kStore;
  LinearWeights weights = LinearWeights::kBf16;

  int weight_rows() const { return out_features * linear_rows_per_output(epilogue); }
  friend auto operator<=>(const LinearShape&, const LinearShape&) = default;
};

// "store", "geglu", "swiglu", "logits"
std::string_view name_of(LinearEpilogue epilogue);
// "bf16", "int4"
std::string_view name_of(LinearWeights weights);

}  // namespace attune
