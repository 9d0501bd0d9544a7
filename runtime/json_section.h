// JSON files of models, read so that whoever wrote them learns which value is wrong.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "common/error.h"

namespace attune {

// Parses one JSON value that is not deeply nested and in which no object has a key twice. `what`
// names it: "the Gemma 4 config". Throws InvalidArgument "<what> cannot be used: <the parser's
// words>; <allowed>".
nlohmann::json parse_json(std::string_view text, std::string_view what, std::string_view allowed);

// The text of a regular file of at most `max_bytes`. Throws InvalidArgument "cannot read <what>:
// path=...; <what_to_do>".
std::string read_json_file(const std::filesystem::path& file, std::uintmax_t max_bytes,
                           std::string_view what, std::string_view what_to_do);

// What `read` returns; what it refuses is said with the file in front.
template <typename Read>
auto naming_file(const std::filesystem::path& file, Read read) {
  try {
    return read();
  } catch (const InvalidArgument& refusal) {
    throw InvalidArgument(file.string() + ": " + refusal.what());
  }
}

// A model's config.json, of `path` itself or in the folder `path`, as `parse` reads its text.
template <typename Parse>
auto read_config(const std::filesystem::path& path, std::string_view what, Parse parse) {
  // A config has a few KiB; whoever names the weights instead shall not wait for them.
  constexpr std::uintmax_t kMaxFileBytes = 16 << 20;
  std::error_code error;
  const auto file = std::filesystem::is_directory(path, error) ? path / "config.json" : path;
  const std::string text = read_json_file(file, kMaxFileBytes, what,
                                          "name a model's config.json or the folder that has it");
  return naming_file(file, [&] { return parse(text); });
}

// Short enough for a message, whatever the value is.
std::string shown(const nlohmann::json& value);

// An object of a file; its keys are shown with the path that leads to them. Null is absent. Every
// reader throws InvalidArgument with the key, its value and what is allowed. Keeps references to
// the object and to `what`.
class JsonSection {
 public:
  JsonSection(const nlohmann::json& object, std::string path, std::string_view what);

  bool has(std::string_view key) const { return find(key) != nullptr; }
  const nlohmann::json& object() const { return object_; }
  std::string name(std::string_view key) const;

  [[noreturn]] void refuse(std::string_view key, std::string_view allowed) const;
  // Of an element of the array at `key`.
  [[noreturn]] void refuse_element(std::string_view key, std::size_t idx,
                                   std::string_view allowed) const;
  // Of several values, with words for them.
  [[noreturn]] void fail(std::string_view values, std::string_view allowed) const;

  int integer(std::string_view key, int min, int max) const;
  int integer_or(std::string_view key, int fallback, int min, int max) const;
  // An array of integers, or one where `or_one`.
  std::vector<int> integers(std::string_view key, int min, int max, bool or_one = false) const;
  double number(std::string_view key, double above, double up_to) const;
  double number_or(std::string_view key, double fallback, double above, double up_to) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string text(std::string_view key, std::initializer_list<std::string_view> allowed) const;
  JsonSection section(std::string_view key) const;

 private:
  const nlohmann::json* find(std::string_view key) const;

  const nlohmann::json& object_;
  std::string path_;
  std::string_view what_;
};

}  // namespace attune
