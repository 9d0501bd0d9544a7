// Byte-pair encoding with byte fallback: a text's characters, merged pair by pair.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace attune {

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};
using Vocabulary = std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>>;

// "<0x0A>" as the byte it stands for.
std::optional<unsigned char> byte_of_token(std::string_view text);

// Encodes as the `tokenizers` library does: the pair of the earliest merge goes first, the leftmost
// of equal ones; a character that is no token is its bytes' tokens.
class BpeModel {
 public:
  // A pair of neighbours, by their texts; together they make the token of both texts.
  using Merge = std::pair<std::string, std::string>;

  // `merges` in order. Throws InvalidArgument when the vocabulary lacks a byte's token, or a part or
  // the result of a merge.
  BpeModel(Vocabulary vocabulary, const std::vector<Merge>& merges);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  // The ids of `text`, which is valid UTF-8.
  std::vector<std::int32_t> encode(std::string_view text) const;

 private:
  struct Merged {
    std::int32_t rank;
    std::int32_t id;
  };
  const Merged* find(std::int32_t left, std::int32_t right) const;
  std::int32_t id_of(const std::string& text, std::string_view role) const;
  std::vector<std::int32_t> characters(std::string_view text) const;  // their ids, not merged

  Vocabulary vocabulary_;
  std::array<std::int32_t, 256> byte_ids_;
  std::unordered_map<std::uint64_t, Merged> merges_;  // by both ids
};

}  // namespace attune
