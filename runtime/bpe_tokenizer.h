// The tokenizer of a Hugging Face tokenizer.json, of Gemma's kind: BPE with byte fallback over the
// whole text, spaces written as U+2581.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "runtime/tokenizer.h"

namespace attune {

// Throws InvalidArgument that names the component which is not Gemma's, and what it is there.
std::unique_ptr<Tokenizer> parse_bpe_tokenizer(std::string_view json);
// As parse_bpe_tokenizer; the file is named.
std::unique_ptr<Tokenizer> load_bpe_tokenizer(const std::filesystem::path& path);

}  // namespace attune
