// A prompt's text as the token ids that a Gemma 4 model is given.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/tokenizer.h"

namespace attune {

enum class PromptForm {
  kChat,  // one turn of a user, and the beginning of the model's behind an empty thought
  kRaw,   // the text alone
};

// BOS and the ids of `text` in its form. Texts of special tokens in `text` are those tokens; BOS is
// not doubled. Throws InvalidArgument when the tokenizer lacks a token that the form has.
std::vector<std::int32_t> prompt_tokens(const Tokenizer& tokenizer, std::string_view text,
                                        PromptForm form);

// `tokens` behind BOS, unless that is their first.
std::vector<std::int32_t> with_bos(std::vector<std::int32_t> tokens, std::int32_t bos_id);

// What ends a Gemma 4 model's turn: the tokens that the checkpoint's config names (those of Gemma 4's
// vocabulary where it names none), and the tokenizer's EOS and end of a turn where there is one.
// Ascending.
std::vector<std::int32_t> stop_tokens(const Tokenizer* tokenizer,
                                      std::span<const std::int32_t> config_eos_ids);

}  // namespace attune
