// A language model of a few tokens whose logits are made of the last tokens, drafters for it, and the
// rounds of speculation with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/acceptance.h"
#include "runtime/drafter.h"
#include "runtime/sampling.h"
#include "runtime/speculation_stats.h"
#include "runtime/stop_rule.h"

namespace attune {

using Tokens = std::vector<std::int32_t>;

// Logits between -2 and 2 that depend on the last two tokens and a salt.
struct ToyModel {
  int vocab_size = 8;
  std::uint64_t salt = 0;
  int ruled_out_every = 0;  // every so many-th token of a row has no probability; 0: none

  std::vector<float> logits(const Tokens& prefix) const {
    const std::int64_t last = prefix.back();
    const std::int64_t before = prefix.size() > 1 ? prefix[prefix.size() - 2] : -1;
    std::vector<float> row(static_cast<std::size_t>(vocab_size));
    for (int token = 0; token < vocab_size; ++token) {
      const double u = uniform(salt, (last << 32) + (before << 12) + token, Draw::kDraft);
      row[static_cast<std::size_t>(token)] = static_cast<float>(4 * u - 2);
      if (ruled_out_every > 0 && (token + last) % ruled_out_every == 0) {
        row[static_cast<std::size_t>(token)] = -std::numeric_limits<float>::infinity();
      }
    }
    return row;
  }
};

inline Tokens with(Tokens tokens, std::int32_t token) {
  tokens.push_back(token);
  return tokens;
}

// The rows of a verify step of `proposed` behind `prefix`.
inline std::vector<float> verify_logits(const ToyModel& model, Tokens prefix,
                                        const Tokens& proposed) {
  std::vector<float> rows = model.logits(prefix);
  for (const std::int32_t token : proposed) {
    prefix.push_back(token);
    const std::vector<float> row = model.logits(prefix);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

// Draws its chain from a model of its own over a vocabulary of its own.
class ToyDrafter final : public Drafter {
 public:
  ToyDrafter(const ToyModel& model, Tokens target_tokens)
      : model_(model), target_tokens_(std::move(target_tokens)) {}

  void begin(std::int32_t first_token) override { tokens_ = {first_token}; }
  void append(std::span<const std::int32_t> tokens, const TargetFeatures&) override {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  }
  Proposal propose(int max_tokens, const SamplingOptions& options) override {
    Proposal proposal;
    proposal.target_tokens = target_tokens_;
    Tokens prefix = tokens_;
    for (int i = 0; i < max_tokens; ++i) {
      SamplingOptions own = {.temperature = options.greedy() ? 1 : options.temperature};
      const auto q = attune::probabilities(model_.logits(prefix), own);
      const auto position = static_cast<std::int64_t>(prefix.size());
      const std::int32_t drawn = draw_token(q, uniform(options.seed, position, Draw::kDraft));
      prefix.push_back(target_tokens_.empty() ? drawn
                                              : target_tokens_[static_cast<std::size_t>(drawn)]);
      proposal.tokens.push_back(prefix.back());
      proposal.probabilities.insert(proposal.probabilities.end(), q.begin(), q.end());
    }
    return proposal;
  }

 private:
  ToyModel model_;
  Tokens target_tokens_;
  Tokens tokens_;
};

// Plain decoding: `prompt` and num_tokens behind it.
inline Tokens decode_plainly(const ToyModel& model, Tokens tokens, int num_tokens,
                             const SamplingOptions& options) {
  for (int i = 0; i < num_tokens; ++i) {
    const auto position = static_cast<std::int64_t>(tokens.size());
    tokens.push_back(next_token(model.logits(tokens), options, position));
  }
  return tokens;
}

struct ToyRound {
  int num_proposed;
  int num_accepted;
  Tokens confirmed;
};

// One round behind `tokens`, which the drafter has.
inline ToyRound speculate(const ToyModel& model, Drafter& drafter, const Tokens& tokens,
                          int chain_length, const SamplingOptions& options) {
  const Proposal proposal = drafter.propose(chain_length, options);
  const auto rows = verify_logits(model, tokens, proposal.tokens);
  const Acceptance acceptance =
      accept({rows, model.vocab_size}, proposal, options, static_cast<std::int64_t>(tokens.size()));
  Tokens confirmed(proposal.tokens.begin(), proposal.tokens.begin() + acceptance.num_accepted);
  confirmed.push_back(acceptance.next_token);
  return {proposal.size(), acceptance.num_accepted, std::move(confirmed)};
}

// The same as decode_plainly by rounds of speculation.
inline Tokens decode_speculatively(const ToyModel& model, Drafter& drafter, const Tokens& prompt,
                                   int num_tokens, int chain_length, const SamplingOptions& options,
                                   SpeculationStats& stats) {
  const int length = static_cast<int>(prompt.size());
  const StopRule rule({length, num_tokens, length + num_tokens}, {});
  drafter.begin(prompt.front());
  Tokens tokens = with(prompt, next_token(model.logits(prompt), options, length));
  drafter.append(std::span(tokens).subspan(1), {});
  for (int num_emitted = 1; num_emitted < num_tokens;) {
    ToyRound round =
        speculate(model, drafter, tokens, rule.chain_length(chain_length, num_emitted), options);
    const Emission emission = rule.emit(round.confirmed, num_emitted);
    stats.add_round(round.num_proposed, round.num_accepted, emission.num_tokens);
    round.confirmed.resize(static_cast<std::size_t>(emission.num_tokens));
    tokens.insert(tokens.end(), round.confirmed.begin(), round.confirmed.end());
    drafter.append(round.confirmed, {});
    num_emitted += emission.num_tokens;
  }
  return tokens;
}

}  // namespace attune
