// Text to token ids and back, as the checkpoint's tokenizer has it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

// What an id adds to a text.
struct TokenText {
  std::string bytes;     // empty: a special token, or no token at all
  bool is_byte = false;  // `bytes` is one byte of a character
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int vocab_size() const = 0;  // the largest id + 1
  // The ids of `text`. Where it holds the text of a special token, that token; nothing is put in
  // front or behind. Malformed UTF-8 counts as U+FFFD.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  virtual TokenText text_of(std::int32_t id) const = 0;
  // The token whose name in the vocabulary is `text`, a special one or another.
  virtual std::optional<std::int32_t> id_of(std::string_view text) const = 0;
  virtual std::optional<std::int32_t> bos_id() const = 0;
  virtual std::optional<std::int32_t> eos_id() const = 0;

  // What a TextStream makes of all `ids`.
  std::string decode(std::span<const std::int32_t> ids) const;
};

// The text of tokens that come one by one. Whatever it returns is whole characters: bytes of one
// that is not complete are held back. A byte that belongs to no character gives U+FFFD.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  // The text that `id` completes.
  std::string append(std::int32_t id);
  // What was held back, as it is at the end of a text.
  std::string finish();

 private:
  std::string take(bool at_end);

  const Tokenizer* tokenizer_;
  std::string held_;
};

// The tokenizer of a checkpoint's folder: tokenizer.json if it has that, else tokenizer.model.
// Throws InvalidArgument when there is neither, or one that is not of Gemma's kind.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder);

}  // namespace attune
