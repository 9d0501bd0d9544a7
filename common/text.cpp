#include "common/text.h"

#include <charconv>

#include <fmt/format.h>
#include <xxhash.h>

namespace attune {
namespace {

std::optional<std::uint64_t> parse_hex(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::int64_t> parse_int(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 10);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string Digest::text() const { return fmt::format("{:016x}{:016x}", high, low); }

std::optional<Digest> Digest::parse(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  const auto high = parse_hex(text.substr(0, 16));
  const auto low = parse_hex(text.substr(16));
  if (!high || !low) return std::nullopt;
  const Digest digest{*high, *low};
  return digest.text() == text ? std::optional(digest) : std::nullopt;
}

Digest digest_of(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

Digest digest_of(std::string_view text) { return digest_of(std::as_bytes(std::span(text))); }

}  // namespace attune
