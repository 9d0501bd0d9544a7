// The tokenizer of a SentencePiece tokenizer.model.
#pragma once

#include <filesystem>
#include <memory>

#include "runtime/tokenizer.h"

namespace attune {

// Throws InvalidArgument when the file is no SentencePiece model, or one that does not keep spaces
// as they are (Gemma's do); Error when this build is without SentencePiece, as bundles are.
std::unique_ptr<Tokenizer> load_sentencepiece_tokenizer(const std::filesystem::path& path);

}  // namespace attune
