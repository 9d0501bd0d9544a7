// UTF-8 that comes in pieces or malformed, and the mark that tokens have for spaces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attune {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD
// What tokens have in place of a space.
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

enum class Utf8Kind {
  kCharacter,  // a whole one
  kPartial,    // the beginning of one, up to the end of the bytes
  kMalformed,  // no character begins so
};

struct Utf8Part {
  Utf8Kind kind;
  std::size_t num_bytes;
};

// What `bytes` begin with; they are not empty. A malformed part is as long as a character could have
// been begun (Unicode's "maximal subpart").
Utf8Part first_utf8_part(std::string_view bytes);

// `bytes` with U+FFFD in place of every malformed part.
std::string valid_utf8(std::string_view bytes);

std::string marks_of_spaces(std::string_view text);
std::string spaces_of_marks(std::string_view text);

}  // namespace attune
