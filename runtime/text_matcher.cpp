#include "runtime/text_matcher.h"

namespace attune {

void TextMatcher::add(std::string_view text, std::int32_t id) {
  std::uint32_t node = 0;
  for (const char byte : text) {
    const auto [found, is_new] =
        edges_.try_emplace(edge(node, byte), static_cast<std::uint32_t>(ids_.size()));
    if (is_new) ids_.push_back(kNone);
    node = found->second;
  }
  ids_[node] = id;
}

TextMatcher::Match TextMatcher::longest_match(std::string_view text) const {
  Match longest;
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto found = edges_.find(edge(node, text[i]));
    if (found == edges_.end()) break;
    node = found->second;
    if (ids_[node] != kNone) longest = {i + 1, ids_[node]};
  }
  return longest;
}

void TextMatcher::split(std::string_view text, const std::function<void(std::string_view)>& between,
                        const std::function<void(std::int32_t)>& found) const {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const Match match = longest_match(text.substr(i));
    if (match.num_bytes == 0) {
      ++i;
      continue;
    }
    if (i > begin) between(text.substr(begin, i - begin));
    found(match.id);
    i += match.num_bytes;
    begin = i;
  }
  if (begin < text.size()) between(text.substr(begin));
}

}  // namespace attune
