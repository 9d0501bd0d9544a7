// How much a tune does for its answer.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace attune {

// In the order of what they do: a winner of more effort is good for one who asks for less.
enum class Effort { kQuick, kNormal, kExhaustive };
std::string_view name_of(Effort effort);
// The inverse of name_of; empty for any other text.
std::optional<Effort> parse_effort(std::string_view text);

struct EffortPlan {
  // Of the candidates of a range, ranked by the cost model: this share of them is compiled, verified
  // and timed, and at least so many. The default always is.
  double share;
  std::size_t least_candidates;
  // First pass: samples of a candidate at a length. Who loses more than drop_regret, beyond what the
  // times leave open, to the leader at a length of a range leaves the range.
  int first_min_samples, first_max_samples;
  double drop_regret;
  // Rematch: finalists beside the default, samples of each in a round, and rounds. It ends when the
  // times say enough, and at max_rounds in any case. plays_again: once or twice more at a length
  // where they say something else than before, and for who leads the default without a proof.
  std::size_t num_finalists;
  int round_samples, min_rounds, max_rounds;
  bool plays_again = true;
};
EffortPlan plan_of(Effort effort);

}  // namespace attune
