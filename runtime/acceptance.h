// Which of a drafter's proposals are accepted, so that what is emitted is what the target alone
// would emit: the same tokens when greedy, else tokens of the same distribution.
// Source: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/drafter.h"
#include "runtime/sampling.h"

namespace attune {

struct Acceptance {
  int num_accepted = 0;         // of the proposals, from the first on
  std::int32_t next_token = 0;  // emitted behind them: the correction, or the bonus when all are

  friend bool operator==(const Acceptance&, const Acceptance&) = default;
};

// Softcapped logits of a verify step: row j is what the target makes of everything up to proposal j,
// so it judges proposal j + 1; the last row judges none.
struct LogitRows {
  std::span<const float> logits;  // [rows][vocab_size]
  int vocab_size = 0;

  std::span<const float> row(int index) const {
    return logits.subspan(static_cast<std::size_t>(index) * vocab_size, vocab_size);
  }
};

// The target's tokens are accepted as long as they are those proposed. token_of(j) is the one that
// row j gives; it is asked for no row behind the first that differs.
template <typename TokenOf>
Acceptance accept_prefix(std::span<const std::int32_t> proposed, TokenOf token_of) {
  int num_accepted = 0;
  for (const std::int32_t token : proposed) {
    const std::int32_t own = token_of(num_accepted);
    if (own != token) return {num_accepted, own};
    ++num_accepted;
  }
  return {num_accepted, token_of(num_accepted)};
}

// `position` is that of the first proposal. Proposals that were not drawn are compared with the
// target's own token of that position, as next_token() gives it: then what is emitted does not
// depend on the proposals at all. Drawn ones are accepted with probability min(1, p/q), or replaced
// by a token of (p - q)+ over the target's whole vocabulary. Throws InvalidArgument when the rows or
// the proposal are not of the sizes they say, on a token that its drafter cannot have drawn, and as
// next_token() does.
Acceptance accept(const LogitRows& rows, const Proposal& proposal, const SamplingOptions& options,
                  std::int64_t position);

}  // namespace attune
