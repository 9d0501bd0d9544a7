#include "runtime/eagle3_drafter.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace attune {

Eagle3Drafter::Eagle3Drafter(Eagle3Head head, Device& device, StreamHandle stream)
    : head_(std::move(head)), device_(device), stream_(stream) {}

void Eagle3Drafter::begin(std::int32_t) {
  head_.clear();
  follows_ = true;
}

void Eagle3Drafter::append(std::span<const std::int32_t> tokens, const TargetFeatures& features) {
  const auto most = static_cast<std::size_t>(head_.max_rows());
  DevicePtr rows = features.rows;
  while (follows_ && !tokens.empty()) {
    const std::size_t count = std::min(tokens.size(), most);
    follows_ = head_.confirmed() + static_cast<int>(count) <= head_.max_tokens();
    if (!follows_) return;
    head_.append(tokens.first(count), rows, features.row_stride, stream_);
    tokens = tokens.subspan(count);
    rows += count * static_cast<std::size_t>(features.row_stride) * kBytesPerElement;
  }
}

Proposal Eagle3Drafter::propose(int max_tokens, const SamplingOptions& options) {
  if (!follows_ || head_.length() == 0) return {};
  // The first token comes from the last slot, each further one from a slot more.
  const int room = std::min(head_.max_tokens() - head_.length() + 1, Eagle3Head::kMaxChain);
  const int num_tokens = std::min(max_tokens, room);
  if (num_tokens < 1) return {};
  return options.greedy() ? best_chain(num_tokens) : drawn_chain(num_tokens, options);
}

// The tokens stay on the device until all are there.
Proposal Eagle3Drafter::best_chain(int num_tokens) {
  for (int i = 1; i < num_tokens; ++i) head_.extend(-1, stream_);
  Proposal proposal;
  proposal.tokens.resize(static_cast<std::size_t>(num_tokens));
  device_.copy_to_host(std::as_writable_bytes(std::span(proposal.tokens)), head_.chain(), stream_);
  // Behind logits that are not numbers comes nothing of use.
  const auto lost = std::find_if(proposal.tokens.begin(), proposal.tokens.end(),
                                 [](std::int32_t token) { return token < 0; });
  proposal.tokens.erase(lost, proposal.tokens.end());
  return proposal;
}

Proposal Eagle3Drafter::drawn_chain(int num_tokens, const SamplingOptions& options) {
  // Warped less than the target's own distribution: what the target cannot give is refused anyway.
  const SamplingOptions own{.temperature = options.temperature, .seed = options.seed};
  Proposal proposal;
  proposal.target_tokens = head_.target_tokens();
  std::vector<float> logits(static_cast<std::size_t>(head_.config().draft_vocab_size));
  for (int i = 0; i < num_tokens; ++i) {
    if (i > 0) head_.extend(proposal.tokens.back(), stream_);
    device_.copy_to_host(std::as_writable_bytes(std::span(logits)), head_.logits(), stream_);
    const std::vector<double> q = probabilities(logits, own);
    // Slot p is of the token at p + 1 and proposes the one at p + 2.
    const std::int64_t position = head_.length() + 1;
    const std::int32_t draft = draw_token(q, uniform(own.seed, position, Draw::kDraft));
    proposal.tokens.push_back(proposal.target_tokens[static_cast<std::size_t>(draft)]);
    proposal.probabilities.insert(proposal.probabilities.end(), q.begin(), q.end());
  }
  return proposal;
}

}  // namespace attune
