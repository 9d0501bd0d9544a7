#include "cli/suggest.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace attune {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string unknown_word(std::string_view word, std::span<const std::string_view> known) {
  std::string_view nearest;
  std::size_t least = word.size() / 2 + 1;  // a word that shares less than half is no suggestion
  for (const std::string_view one : known) {
    const std::size_t distance = edit_distance(word, one);
    if (distance < least) {
      least = distance;
      nearest = one;
    }
  }
  if (nearest.empty()) {
    return fmt::format("'{}' is not known; known are {}", word, fmt::join(known, ", "));
  }
  return fmt::format("'{}' is not known; did you mean {}?", word, nearest);
}

}  // namespace attune
