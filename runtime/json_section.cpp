#include "runtime/json_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "common/text.h"

namespace attune {
namespace {

using nlohmann::json;

[[noreturn]] void fail_with(std::string_view what, std::string_view values,
                            std::string_view allowed) {
  throw InvalidArgument(fmt::format("{} cannot be used", what), values, allowed);
}

std::string shortened(const std::string& text, std::size_t max_length) {
  return text.size() <= max_length ? text : text.substr(0, max_length) + "...";
}

// By its text: JSON's integers are signed or unsigned, and may exceed either.
std::optional<int> integer_of(const json& value, int min, int max) {
  if (!value.is_number_integer()) return std::nullopt;
  const auto number = parse_int(value.dump());
  if (!number || *number < min || *number > max) return std::nullopt;
  return static_cast<int>(*number);
}

}  // namespace

json parse_json(std::string_view text, std::string_view what, std::string_view allowed) {
  constexpr int kMaxDepth = 32;
  // To the parser a zero byte is the end, whatever follows it.
  if (text.find('\0') != std::string_view::npos) fail_with(what, "it has a zero byte", allowed);
  std::vector<std::set<std::string>> keys;  // of each object that is open
  const auto refuse_bad_form = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxDepth) fail_with(what, fmt::format("depth={}", depth), allowed);
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key &&
        !keys.back().insert(parsed.get<std::string>()).second) {
      fail_with(what, fmt::format("key={} appears twice", shown(parsed)), allowed);
    }
    return true;
  };
  try {
    return json::parse(text, refuse_bad_form);
  } catch (const json::exception& error) {
    constexpr std::size_t kMaxShown = 200;  // a parser quotes the whole token it failed at
    fail_with(what, shortened(error.what(), kMaxShown), allowed);
  }
}

std::string read_json_file(const std::filesystem::path& file, std::uintmax_t max_bytes,
                           std::string_view what, std::string_view what_to_do) {
  std::error_code error;
  const bool readable = std::filesystem::is_regular_file(file, error) &&
                        std::filesystem::file_size(file, error) <= max_bytes;
  std::ifstream stream;
  if (readable) stream.open(file, std::ios::binary);
  if (!stream.is_open()) {
    throw InvalidArgument(fmt::format("cannot read {}", what),
                          fmt::format("path={}", file.string()), what_to_do);
  }
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::string shown(const json& value) {
  constexpr std::size_t kMaxShown = 60;
  if (value.is_structured()) return fmt::format("({} of {})", value.type_name(), value.size());
  return shortened(value.dump(-1, ' ', true, json::error_handler_t::replace), kMaxShown);
}

JsonSection::JsonSection(const json& object, std::string path, std::string_view what)
    : object_(object), path_(std::move(path)), what_(what) {
  if (object.is_object()) return;
  fail(fmt::format("{}={}", path_.empty() ? "file" : path_, shown(object)), "it is an object");
}

std::string JsonSection::name(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void JsonSection::fail(std::string_view values, std::string_view allowed) const {
  fail_with(what_, values, allowed);
}

void JsonSection::refuse(std::string_view key, std::string_view allowed) const {
  const json* value = find(key);
  fail(fmt::format("{}={}", name(key), value == nullptr ? "(missing)" : shown(*value)), allowed);
}

void JsonSection::refuse_element(std::string_view key, std::size_t idx,
                                 std::string_view allowed) const {
  fail(fmt::format("{}[{}]={}", name(key), idx, shown(find(key)->at(idx))), allowed);
}

int JsonSection::integer(std::string_view key, int min, int max) const {
  const json* value = find(key);
  const auto number = value == nullptr ? std::nullopt : integer_of(*value, min, max);
  if (number) return *number;
  refuse(key, fmt::format("{} is an integer, {} to {}", key, min, max));
}

int JsonSection::integer_or(std::string_view key, int fallback, int min, int max) const {
  return has(key) ? integer(key, min, max) : fallback;
}

std::vector<int> JsonSection::integers(std::string_view key, int min, int max, bool or_one) const {
  const json* value = find(key);
  if (value != nullptr && or_one && !value->is_array()) return {integer(key, min, max)};
  if (value == nullptr || !value->is_array()) {
    refuse(key, fmt::format("{} lists integers, {} to {}", key, min, max));
  }
  std::vector<int> numbers;
  for (const json& element : *value) {
    const auto number = integer_of(element, min, max);
    if (!number) {
      refuse_element(key, numbers.size(), fmt::format("it is an integer, {} to {}", min, max));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

double JsonSection::number(std::string_view key, double above, double up_to) const {
  const json* value = find(key);
  if (value != nullptr && value->is_number()) {
    const double number = value->get<double>();
    if (number > above && number <= up_to) return number;
  }
  refuse(key, fmt::format("{} is a number above {}, up to {}", key, above, up_to));
}

double JsonSection::number_or(std::string_view key, double fallback, double above,
                              double up_to) const {
  return has(key) ? number(key, above, up_to) : fallback;
}

bool JsonSection::boolean_or(std::string_view key, bool fallback) const {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) refuse(key, fmt::format("{} is true or false", key));
  return value->get<bool>();
}

std::string JsonSection::text(std::string_view key,
                              std::initializer_list<std::string_view> allowed) const {
  const json* value = find(key);
  if (value != nullptr && value->is_string()) {
    const std::string& text = value->get_ref<const std::string&>();
    if (std::find(allowed.begin(), allowed.end(), text) != allowed.end()) return text;
  }
  refuse(key, fmt::format("{} is {}", key, fmt::join(allowed, " or ")));
}

JsonSection JsonSection::section(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr || !value->is_object()) refuse(key, fmt::format("{} is an object", key));
  return JsonSection(*value, name(key), what_);
}

const json* JsonSection::find(std::string_view key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace attune
