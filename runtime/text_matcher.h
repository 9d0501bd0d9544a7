// Finds any of many texts in a text.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace attune {

// A text goes from the left: where several begin at one place the longest is taken, and what it
// covers begins no other.
class TextMatcher {
 public:
  void add(std::string_view text, std::int32_t id);  // `text` is not empty
  // Calls `between` with every stretch that is none of the texts, in order, and `found` with the id
  // of each text.
  void split(std::string_view text, const std::function<void(std::string_view)>& between,
             const std::function<void(std::int32_t)>& found) const;

 private:
  struct Match {
    std::size_t num_bytes = 0;  // 0: none
    std::int32_t id = 0;
  };
  Match longest_match(std::string_view text) const;

  // A trie. Its edges by node and byte; a node's id is kNone where no text ends.
  static constexpr std::int32_t kNone = -1;
  static std::uint64_t edge(std::uint32_t node, char byte) {
    return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  }
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;
  std::vector<std::int32_t> ids_ = {kNone};
};

}  // namespace attune
