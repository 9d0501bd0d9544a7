// When a sequence ends, and how long a chain is still worth drafting.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace attune {

enum class StopReason { kNone, kStopToken, kMaxNewTokens, kContextEnd };

struct Emission {
  int num_tokens = 0;  // emitted, a stop token included
  StopReason reason = StopReason::kNone;

  friend bool operator==(const Emission&, const Emission&) = default;
};

struct StopLimits {
  int prompt_length = 1;
  int max_new_tokens = 128;
  int max_tokens = 8192;  // of the sequence, prompt included
};

class StopRule {
 public:
  // Throws InvalidArgument when the prompt is empty or leaves no room, or max_new_tokens is below 1.
  StopRule(const StopLimits& limits, std::vector<std::int32_t> stop_tokens);

  // What of a round's tokens is emitted when num_emitted tokens were before: those up to the first
  // stop token, or to the end of the room.
  Emission emit(std::span<const std::int32_t> tokens, int num_emitted) const;

  // Of a chain of `wanted` proposals, as many as can be emitted besides the target's own token. So
  // a verify step never leaves the context.
  int chain_length(int wanted, int num_emitted) const {
    return std::clamp(budget_ - num_emitted - 1, 0, wanted);
  }

 private:
  std::vector<std::int32_t> stop_tokens_;
  int budget_;
  StopReason budget_reason_;
};

}  // namespace attune
