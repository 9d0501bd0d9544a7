#include "runtime/acceptance.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/error.h"

namespace attune {
namespace {

// Draft tokens, or 0 where the proposals were not drawn.
std::size_t draft_vocab_size(const Proposal& proposal) {
  return proposal.tokens.empty() ? 0 : proposal.probabilities.size() / proposal.tokens.size();
}

void check_sizes(const LogitRows& rows, const Proposal& proposal) {
  const auto num_rows = static_cast<std::size_t>(proposal.size()) + 1;
  const std::size_t draft_vocab = draft_vocab_size(proposal);
  const std::size_t num_targets =
      proposal.target_tokens.empty() ? rows.vocab_size : proposal.target_tokens.size();
  if (rows.vocab_size > 0 && rows.logits.size() == num_rows * rows.vocab_size &&
      proposal.probabilities.size() == draft_vocab * proposal.tokens.size() &&
      (draft_vocab == 0 || draft_vocab == num_targets)) {
    return;
  }
  throw InvalidArgument(
      "a proposal cannot be judged",
      fmt::format("tokens={} vocab_size={} logits={} probabilities={} target_tokens={}",
                  proposal.size(), rows.vocab_size, rows.logits.size(),
                  proposal.probabilities.size(), proposal.target_tokens.size()),
      "there is a row of logits more than tokens, and a row of probabilities for each token or "
      "none");
}

// What proposal `index` was drawn from, by the target's tokens; 0 for those it cannot reach.
std::vector<double> scattered(const Proposal& proposal, int index, int vocab_size) {
  const std::size_t draft_vocab = draft_vocab_size(proposal);
  const auto row = std::span(proposal.probabilities).subspan(index * draft_vocab, draft_vocab);
  if (proposal.target_tokens.empty()) return {row.begin(), row.end()};
  std::vector<double> q(vocab_size);
  for (std::size_t i = 0; i < draft_vocab; ++i) {
    const std::int32_t token = proposal.target_tokens[i];
    if (token < 0 || token >= vocab_size) {
      throw InvalidArgument(
          "a draft token has no target token",
          fmt::format("draft_token={} token={} vocab_size={}", i, token, vocab_size));
    }
    q[token] += row[i];
  }
  return q;
}

// A token of distribution p: the proposed one, drawn from q, or one of what q leaves of p.
std::int32_t judge(std::span<const double> p, std::span<const double> q, std::int32_t proposed,
                   std::uint64_t seed, std::int64_t position) {
  if (proposed < 0 || proposed >= static_cast<std::int32_t>(p.size()) || !(q[proposed] > 0)) {
    throw InvalidArgument("a proposal was not drawn from its probabilities",
                          fmt::format("position={} token={}", position, proposed));
  }
  if (uniform(seed, position, Draw::kAccept) * q[proposed] < p[proposed]) return proposed;
  std::vector<double> residual(p.size());
  std::transform(p.begin(), p.end(), q.begin(), residual.begin(),
                 [](double a, double b) { return std::max(a - b, 0.0); });
  const double u = uniform(seed, position, Draw::kToken);
  const bool is_empty =
      std::all_of(residual.begin(), residual.end(), [](double weight) { return weight == 0; });
  return draw_token(is_empty ? p : residual, u);
}

}  // namespace

Acceptance accept(const LogitRows& rows, const Proposal& proposal, const SamplingOptions& options,
                  std::int64_t position) {
  check_sampling(options);
  check_sizes(rows, proposal);
  const bool is_drawn = !options.greedy() && !proposal.probabilities.empty();
  return accept_prefix(proposal.tokens, [&](int index) {
    if (!is_drawn || index == proposal.size()) {
      return next_token(rows.row(index), options, position + index);
    }
    return judge(probabilities(rows.row(index), options),
                 scattered(proposal, index, rows.vocab_size), proposal.tokens[index], options.seed,
                 position + index);
  });
}

}  // namespace attune
