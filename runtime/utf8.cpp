#include "runtime/utf8.h"

namespace attune {
namespace {

// Bytes of a character, and what its second byte may be: the Unicode standard's table of
// well-formed sequences.
struct Lead {
  std::size_t num_bytes;
  unsigned char second_min = 0x80;
  unsigned char second_max = 0xBF;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (std::size_t at = text.find(from); at != std::string_view::npos; at = text.find(from)) {
    result += text.substr(0, at);
    result += to;
    text.remove_prefix(at + from.size());
  }
  return result += text;
}

}  // namespace

Utf8Part first_utf8_part(std::string_view bytes) {
  const Lead lead = lead_of(static_cast<unsigned char>(bytes[0]));
  if (lead.num_bytes == 0) return {Utf8Kind::kMalformed, 1};
  for (std::size_t i = 1; i < lead.num_bytes; ++i) {
    if (i == bytes.size()) return {Utf8Kind::kPartial, i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const bool is_second = i == 1;
    if (byte < (is_second ? lead.second_min : 0x80) ||
        byte > (is_second ? lead.second_max : 0xBF)) {
      return {Utf8Kind::kMalformed, i};
    }
  }
  return {Utf8Kind::kCharacter, lead.num_bytes};
}

std::string valid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Part part = first_utf8_part(bytes);
    text +=
        part.kind == Utf8Kind::kCharacter ? bytes.substr(0, part.num_bytes) : kReplacementCharacter;
    bytes.remove_prefix(part.num_bytes);
  }
  return text;
}

std::string marks_of_spaces(std::string_view text) { return replaced(text, " ", kSpaceMark); }

std::string spaces_of_marks(std::string_view text) { return replaced(text, kSpaceMark, " "); }

}  // namespace attune
