#include "runtime/tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "common/error.h"
#include "runtime/bpe_tokenizer.h"
#include "runtime/sentencepiece_tokenizer.h"
#include "runtime/utf8.h"

namespace attune {

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  TextStream stream(*this);
  std::string text;
  for (const std::int32_t id : ids) text += stream.append(id);
  return text + stream.finish();
}

std::string TextStream::append(std::int32_t id) {
  TokenText token = tokenizer_->text_of(id);
  if (token.bytes.empty()) return {};
  if (!token.is_byte) return finish() + token.bytes;
  held_ += token.bytes;
  return take(/*at_end=*/false);
}

std::string TextStream::finish() { return take(/*at_end=*/true); }

std::string TextStream::take(bool at_end) {
  std::string text;
  std::size_t taken = 0;
  while (taken < held_.size()) {
    const std::string_view rest = std::string_view(held_).substr(taken);
    const Utf8Part part = first_utf8_part(rest);
    if (part.kind == Utf8Kind::kPartial && !at_end) break;
    if (part.kind == Utf8Kind::kCharacter) {
      text += rest.substr(0, part.num_bytes);
    } else {
      for (std::size_t i = 0; i < part.num_bytes; ++i) text += kReplacementCharacter;
    }
    taken += part.num_bytes;
  }
  held_.erase(0, taken);
  return text;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder) {
  const auto json = folder / "tokenizer.json";
  const auto model = folder / "tokenizer.model";
  std::error_code error;
  if (std::filesystem::exists(json, error)) return load_bpe_tokenizer(json);
  if (std::filesystem::exists(model, error)) return load_sentencepiece_tokenizer(model);
  throw InvalidArgument(
      "the checkpoint has no tokenizer", fmt::format("folder={}", folder.string()),
      "put its tokenizer.json or tokenizer.model there, or give token ids in a file");
}

}  // namespace attune
