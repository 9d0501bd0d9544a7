#include "runtime/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "common/error.h"
#include "common/text.h"
#include "runtime/read_file.h"

namespace attune {
namespace {

constexpr std::size_t kBytesPerToken = sizeof(std::int32_t);
constexpr std::string_view kSeparators = " \t\v\f\r,";

struct Place {
  std::string_view unit;  // "line" or "offset"
  std::size_t number;
};

class TokenChecker {
 public:
  TokenChecker(const std::filesystem::path& path, std::optional<int> vocab_size)
      : path_(path), end_(vocab_size ? std::int64_t{*vocab_size} : std::int64_t{1} << 31) {}

  [[noreturn]] void fail(std::string_view values, std::string_view what_to_do) const {
    throw InvalidArgument("cannot read the token file",
                          fmt::format("file={} {}", path_.string(), values), what_to_do);
  }
  std::int32_t checked(std::int64_t id, Place place) const {
    if (id >= 0 && id < end_) return static_cast<std::int32_t>(id);
    fail(fmt::format("{}={} value={}", place.unit, place.number, id), allowed());
  }
  std::int32_t parsed(std::string_view word, Place place) const {
    constexpr std::size_t kMaxShown = 40;
    if (const auto id = parse_int(word)) return checked(*id, place);
    fail(fmt::format("{}={} value={:?}{}", place.unit, place.number, word.substr(0, kMaxShown),
                     word.size() > kMaxShown ? "..." : ""),
         allowed());
  }

 private:
  std::string allowed() const {
    return fmt::format("token ids are integers from 0 to {}", end_ - 1);
  }

  const std::filesystem::path& path_;
  std::int64_t end_;
};

std::vector<std::int32_t> parse_text(std::string_view text, const TokenChecker& checker) {
  std::vector<std::int32_t> tokens;
  std::size_t line_number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++line_number;
    for (std::size_t begin = line.find_first_not_of(kSeparators);
         begin != std::string_view::npos;) {
      const std::size_t end = std::min(line.find_first_of(kSeparators, begin), line.size());
      tokens.push_back(checker.parsed(line.substr(begin, end - begin), {"line", line_number}));
      begin = line.find_first_not_of(kSeparators, end);
    }
  }
  return tokens;
}

std::vector<std::int32_t> parse_binary(std::string_view bytes, const TokenChecker& checker) {
  if (bytes.size() % kBytesPerToken != 0) {
    checker.fail(fmt::format("bytes={}", bytes.size()),
                 "a .bin file is little-endian int32: its size is a multiple of 4");
  }
  std::vector<std::int32_t> tokens;
  tokens.reserve(bytes.size() / kBytesPerToken);
  for (std::size_t offset = 0; offset < bytes.size(); offset += kBytesPerToken) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < kBytesPerToken; ++i) {
      bits |= std::uint32_t{static_cast<unsigned char>(bytes[offset + i])} << (8 * i);
    }
    tokens.push_back(checker.checked(static_cast<std::int32_t>(bits), {"offset", offset}));
  }
  return tokens;
}

std::string text_of(std::span<const std::int32_t> tokens) {
  std::string text;
  for (const std::int32_t token : tokens) fmt::format_to(std::back_inserter(text), "{}\n", token);
  return text;
}

std::string binary_of(std::span<const std::int32_t> tokens) {
  std::string bytes;
  bytes.reserve(tokens.size() * kBytesPerToken);
  for (const std::int32_t token : tokens) {
    for (std::size_t i = 0; i < kBytesPerToken; ++i) {
      bytes += static_cast<char>(static_cast<std::uint32_t>(token) >> (8 * i));
    }
  }
  return bytes;
}

bool is_binary(const std::filesystem::path& path) { return path.extension() == ".bin"; }

}  // namespace

std::vector<std::int32_t> read_token_file(const std::filesystem::path& path,
                                          std::optional<int> vocab_size) {
  const TokenChecker checker(path, vocab_size);
  const std::optional<std::string> bytes = read_file(path);
  if (!bytes) checker.fail("opened=no", "name a file of token ids that exists and can be read");
  auto tokens = is_binary(path) ? parse_binary(*bytes, checker) : parse_text(*bytes, checker);
  if (tokens.empty()) {
    checker.fail(fmt::format("bytes={} ids=0", bytes->size()),
                 "name a file with one token id or more");
  }
  return tokens;
}

void write_token_file(const std::filesystem::path& path, std::span<const std::int32_t> tokens) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  const std::string bytes = is_binary(path) ? binary_of(tokens) : text_of(tokens);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (file.fail()) {
    throw InvalidArgument("cannot write the token file", fmt::format("file={}", path.string()),
                          "name a file in a folder that you may write to");
  }
}

}  // namespace attune
