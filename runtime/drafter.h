// What proposes tokens that the target model then verifies together. Any drafter plugs in here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "jit/device.h"
#include "runtime/sampling.h"

namespace attune {

// Tokens for the positions behind the last confirmed one, in order.
struct Proposal {
  std::vector<std::int32_t> tokens = {};  // of the target's vocabulary
  // [tokens][draft vocabulary]: what each token was drawn from, each row's sum is 1. Empty: the
  // tokens were not drawn, they are the drafter's only choice.
  std::vector<double> probabilities = {};
  // The target's token of each draft token; empty where the vocabularies are one. The drafter's own,
  // valid as long as it lives.
  std::span<const std::int32_t> target_tokens = {};

  int size() const { return static_cast<int>(tokens.size()); }
};

// Hidden states of the target at the drafter's taps, of positions that it has run.
struct TargetFeatures {
  DevicePtr rows = 0;           // bf16 [num_rows][taps * hidden size], taps in their order
  std::int64_t row_stride = 0;  // elements
};

// A sequence goes begin, append (the prompt, in chunks), then propose and append in turn.
class Drafter {
 public:
  virtual ~Drafter() = default;

  // Which hidden states of the target append() is given: 0 is the scaled embedding, k the residual
  // stream behind k layers; ascending. None: append() is given no features.
  virtual std::span<const int> taps() const { return {}; }

  // Forgets its sequence and begins one with the first token.
  virtual void begin(std::int32_t first_token) = 0;

  // Confirmed tokens, next in the sequence: of the prompt, or of a round the proposals that were
  // accepted and the target's own token behind them. Row i of `features` is of the position in front
  // of tokens[i], for which the target has been run; the last token's own comes with the next call.
  // Replaces whatever the drafter kept of its proposals.
  virtual void append(std::span<const std::int32_t> tokens, const TargetFeatures& features) = 0;

  // At most max_tokens proposals; fewer, or none, where it has no more. Drawn ones by
  // uniform(options.seed, position, Draw::kDraft).
  virtual Proposal propose(int max_tokens, const SamplingOptions& options) = 0;
};

}  // namespace attune
