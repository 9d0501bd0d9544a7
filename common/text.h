// Numbers, lists and digests as text; independent of the locale.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

// Parses a whole decimal number; nothing but digits and one leading '-' is accepted. Empty on any
// other text or on overflow.
std::optional<std::int64_t> parse_int(std::string_view text);

// Splits at every `separator`; "a//b" has three parts, the middle one empty.
std::vector<std::string_view> split(std::string_view text, char separator);

// 128-bit XXH3 of a byte string. Its text form is 32 lower-case hexadecimal digits.
struct Digest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  std::string text() const;
  static std::optional<Digest> parse(std::string_view text);
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

Digest digest_of(std::span<const std::byte> bytes);
Digest digest_of(std::string_view text);

}  // namespace attune
