// From a row of softcapped logits to a token. Plain decoding and speculation use the same functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace attune {

struct SamplingOptions {
  double temperature = 0;  // 0: greedy, whatever the other fields are
  int top_k = 0;           // the most probable tokens that are kept; 0: all
  double top_p = 1;        // then the fewest whose probabilities reach top_p
  std::uint64_t seed = 0;

  bool greedy() const { return temperature == 0; }
  friend bool operator==(const SamplingOptions&, const SamplingOptions&) = default;
};

// Throws InvalidArgument unless temperature is finite and not negative, top_k not negative, and
// top_p above 0, up to 1.
void check_sampling(const SamplingOptions& options);

// What a random number of a position decides.
enum class Draw : std::uint32_t { kToken, kDraft, kAccept };

// In [0, 1); of nothing but its arguments, so that a run can be repeated. `position` is that of the
// token in its sequence.
double uniform(std::uint64_t seed, std::int64_t position, Draw draw);

// The token of the largest logit; of equal ones the first. Throws InvalidArgument on logits that are
// NaN or +infinity, and when none is finite.
std::int32_t argmax(std::span<const float> logits);

// The probability of every token, by softmax(logits / temperature), top_k and top_p; ties go to the
// lower token. Throws as argmax and check_sampling do, and when the options are greedy.
std::vector<double> probabilities(std::span<const float> logits, const SamplingOptions& options);

// A token by its weight, which needs no norm; u is in [0, 1). Throws InvalidArgument when no weight
// is above 0.
std::int32_t draw_token(std::span<const double> weights, double u);

// The token at `position` that plain decoding emits.
std::int32_t next_token(std::span<const float> logits, const SamplingOptions& options,
                        std::int64_t position);

}  // namespace attune
