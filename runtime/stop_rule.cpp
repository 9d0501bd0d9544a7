#include "runtime/stop_rule.h"

#include <fmt/format.h>

#include <utility>

#include "common/error.h"

namespace attune {

StopRule::StopRule(const StopLimits& limits, std::vector<std::int32_t> stop_tokens)
    : stop_tokens_(std::move(stop_tokens)) {
  if (limits.prompt_length < 1 || limits.prompt_length >= limits.max_tokens) {
    throw InvalidArgument(
        "the prompt does not fit",
        fmt::format("prompt_length={} max_tokens={}", limits.prompt_length, limits.max_tokens),
        "a prompt has 1 token or more, and fewer than the sequence may have");
  }
  if (limits.max_new_tokens < 1) {
    throw InvalidArgument("no token may be emitted",
                          fmt::format("max_new_tokens={}", limits.max_new_tokens),
                          "max_new_tokens is 1 or more");
  }
  const int room = limits.max_tokens - limits.prompt_length;
  budget_ = std::min(limits.max_new_tokens, room);
  budget_reason_ =
      limits.max_new_tokens <= room ? StopReason::kMaxNewTokens : StopReason::kContextEnd;
}

Emission StopRule::emit(std::span<const std::int32_t> tokens, int num_emitted) const {
  int num_tokens = 0;
  for (const std::int32_t token : tokens) {
    if (num_emitted + num_tokens == budget_) break;
    ++num_tokens;
    if (std::find(stop_tokens_.begin(), stop_tokens_.end(), token) != stop_tokens_.end()) {
      return {num_tokens, StopReason::kStopToken};
    }
  }
  const bool is_spent = num_emitted + num_tokens == budget_;
  return {num_tokens, is_spent ? budget_reason_ : StopReason::kNone};
}

}  // namespace attune
