// The tokenizers of tests/data/tokenizer, and what the reference libraries make of texts.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/tokenizer.h"
#include "tests/support/test_data.h"

namespace attune {

inline std::filesystem::path tokenizer_path(const std::string& name) {
  return test_data("tokenizer/" + name);
}

inline std::string tokenizer_text(const std::string& name) {
  std::ifstream file(tokenizer_path(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline const nlohmann::json& tokenizer_cases() {
  static const auto cases = nlohmann::json::parse(tokenizer_text("cases.json"));
  return cases;
}

// The text of `ids` in the pieces that a stream gives.
inline std::vector<std::string> streamed(const Tokenizer& tokenizer,
                                         const std::vector<std::int32_t>& ids) {
  TextStream stream(tokenizer);
  std::vector<std::string> pieces;
  for (const std::int32_t id : ids) pieces.push_back(stream.append(id));
  pieces.push_back(stream.finish());
  return pieces;
}

}  // namespace attune
