// EAGLE-3 as a drafter: the head's sequence beside the target's.
#pragma once

#include "runtime/drafter.h"
#include "runtime/eagle3_head.h"

namespace attune {

class Eagle3Drafter final : public Drafter {
 public:
  // Works on `stream`, on which the target's taps are written, too. Where a sequence outgrows the
  // head's slots it proposes nothing any more.
  Eagle3Drafter(Eagle3Head head, Device& device, StreamHandle stream);

  std::span<const int> taps() const override { return head_.config().taps; }
  void begin(std::int32_t first_token) override;
  void append(std::span<const std::int32_t> tokens, const TargetFeatures& features) override;
  // Greedy: the head's best tokens, which are no draws. Else draws of its own distribution.
  Proposal propose(int max_tokens, const SamplingOptions& options) override;

 private:
  Proposal best_chain(int num_tokens);
  Proposal drawn_chain(int num_tokens, const SamplingOptions& options);

  Eagle3Head head_;
  Device& device_;
  StreamHandle stream_;
  bool follows_ = true;  // the head has all confirmed tokens
};

}  // namespace attune
