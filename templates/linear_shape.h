// What a linear layer computes.
#pragma once

#include <compare>
#include <string_view>

#include "templates/linear_config.h"

namespace attune {

// y[num_tokens, out_features] = epilogue(W x); of kGeglu and kSwiglu W has 2 * out_features rows.
// Of experts it is the layer of one; a launch has those of all experts that its tokens chose.
struct LinearShape {
  int out_features = 0;
  int in_features = 0;
  LinearEpilogue epilogue = LinearEpilogue::kStore;
  LinearWeights weights = LinearWeights::kBf16;
  int num_experts = 0;  // 0: the layer is not one of experts
  int top_k = 0;        // experts that a token chooses

  bool is_experts() const { return num_experts > 0; }
  int weight_rows() const { return out_features * linear_rows_per_output(epilogue); }
  int all_weight_rows() const { return (is_experts() ? num_experts : 1) * weight_rows(); }
  // An expert's first layer is gated, and all have the same x; the second one has what the first made
  // of it, an x of its own for each expert.
  bool has_input_per_expert() const {
    return is_experts() && linear_rows_per_output(epilogue) == 1;
  }

  // Whether problems have so many tokens, and which one serves a launch. One token alone chooses so few
  // experts that their layers have it of any weights; where no kernel does, that of 8 tokens takes it.
  bool is_problem_of(int tokens) const {
    return is_linear_token_block(tokens, weights) || (tokens == 1 && is_experts());
  }
  int problem_tokens(int num_tokens) const {
    return num_tokens == 1 && is_experts() ? 1 : linear_token_block(num_tokens, weights);
  }
  friend auto operator<=>(const LinearShape&, const LinearShape&) = default;
};

// "store", "geglu", "swiglu", "logits"
std::string_view name_of(LinearEpilogue epilogue);
// "bf16", "int4"
std::string_view name_of(LinearWeights weights);

}  // namespace attune
