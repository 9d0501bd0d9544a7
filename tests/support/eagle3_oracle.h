// The forward pass of an EAGLE-3 draft head in double, straight from its formulas.
#pragma once

#include <span>

#include "runtime/eagle3_config.h"
#include "tests/support/gemma4_model_oracle.h"

namespace attune::oracle {

// The target's hidden states that the head reads: [num_tokens, num_taps * target_hidden_size].
Rows taps_of(const ModelOracle::Step& step, const Eagle3Config& config);

// Slots of one sequence from 0. Keeps their keys and values.
class Eagle3Oracle {
 public:
  // A head without embed_tokens of its own gets the model's, not scaled, in `weights`.
  Eagle3Oracle(Eagle3Config config, Eagle3Floats weights);

  // The features of taps: [num_tokens, hidden_size].
  Rows fuse(std::span<const double> taps) const;

  struct Step {
    Rows g;       // [num_tokens, hidden_size]: the features of the next slot in a chain
    Rows logits;  // [num_tokens, draft_vocab_size]
  };
  // The next slots: each joins a feature and a token.
  Step push(std::span<const int> tokens, std::span<const double> features);
  int length() const { return length_; }
  void cut(int length);

 private:
  Rows attention(std::span<const double> x);

  Eagle3Config config_;
  Eagle3Floats weights_;
  LayerGeometry layer_;
  Rows k_, v_;
  int length_ = 0;
};

}  // namespace attune::oracle
