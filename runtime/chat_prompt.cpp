#include "runtime/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "common/error.h"

namespace attune {
namespace {

constexpr std::string_view kTurnEnd = "<turn|>";
constexpr std::array<std::string_view, 4> kChatTokens = {"<|turn>", kTurnEnd, "<|channel>",
                                                         "<channel|>"};
constexpr std::array<std::int32_t, 3> kGemma4StopTokens = {1, 50, 106};

std::string chat_text(std::string_view text) {
  return fmt::format("<|turn>user\n{}<turn|>\n<|turn>model\n<|channel>thought\n<channel|>", text);
}

}  // namespace

std::vector<std::int32_t> with_bos(std::vector<std::int32_t> tokens, std::int32_t bos_id) {
  if (tokens.empty() || tokens.front() != bos_id) tokens.insert(tokens.begin(), bos_id);
  return tokens;
}

std::vector<std::int32_t> prompt_tokens(const Tokenizer& tokenizer, std::string_view text,
                                        PromptForm form) {
  const auto bos = tokenizer.bos_id();
  if (!bos) {
    throw InvalidArgument("the tokenizer has no BOS",
                          fmt::format("vocab_size={}", tokenizer.vocab_size()),
                          "a Gemma model needs it: give token ids in a file");
  }
  if (form == PromptForm::kRaw) return with_bos(tokenizer.encode(text), *bos);
  for (const std::string_view token : kChatTokens) {
    if (tokenizer.id_of(token)) continue;
    throw InvalidArgument("the tokenizer lacks a token of the chat form",
                          fmt::format("token={}", token),
                          "use the tokenizer of a Gemma 4 checkpoint, or the raw prompt");
  }
  return with_bos(tokenizer.encode(chat_text(text)), *bos);
}

std::vector<std::int32_t> stop_tokens(const Tokenizer* tokenizer,
                                      std::span<const std::int32_t> config_eos_ids) {
  const std::span<const std::int32_t> named =
      config_eos_ids.empty() ? std::span<const std::int32_t>(kGemma4StopTokens) : config_eos_ids;
  std::vector<std::int32_t> tokens(named.begin(), named.end());
  if (tokenizer != nullptr) {
    for (const auto id : {tokenizer->eos_id(), tokenizer->id_of(kTurnEnd)}) {
      if (id) tokens.push_back(*id);
    }
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

}  // namespace attune
