// What a misspelt word may have been meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace attune {

// Insertions, deletions and replacements between two words.
std::size_t edit_distance(std::string_view a, std::string_view b);

// "'windw' is not known; did you mean window?", or the list of all known ones when none is near.
std::string unknown_word(std::string_view word, std::span<const std::string_view> known);

}  // namespace attune
