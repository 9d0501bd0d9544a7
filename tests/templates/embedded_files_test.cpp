// What NVRTC reads instead of the disk: the embedded files have to be closed under #include.
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "templates/family.h"

namespace attune {
namespace {

const EmbeddedFile* find_file(std::string_view name) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

// Every included name of a text, as written between quotes or angle brackets.
std::set<std::string> includes_of(std::string_view text) {
  std::set<std::string> names;
  for (std::size_t at = text.find("#include"); at != std::string_view::npos;
       at = text.find("#include", at + 1)) {
    const std::string_view line = text.substr(at, text.find('\n', at) - at);
    const std::size_t open = line.find_first_of("\"<");
    const std::size_t close = line.find_first_of("\">", open + 1);
    names.emplace(line.substr(open, close - open + 1));
  }
  return names;
}

TEST(EmbeddedFiles, HaveDistinctNamesAndSomeText) {
  std::set<std::string_view> names;
  for (const EmbeddedFile& file : embedded_files()) {
    EXPECT_TRUE(names.insert(file.name).second) << file.name;
    EXPECT_TRUE(file.name.starts_with("templates/")) << file.name;
    EXPECT_NE(file.text.find("attune"), std::string_view::npos) << file.name;
    EXPECT_NE(file.text.find("#pragma once"), std::string_view::npos) << file.name;
  }
}

TEST(EmbeddedFiles, IncludeNothingButEachOther) {
  for (const EmbeddedFile& file : embedded_files()) {
    for (const std::string& include : includes_of(file.text)) {
      ASSERT_EQ(include.front(), '"') << file.name << " includes " << include;
      EXPECT_NE(find_file(include.substr(1, include.size() - 2)), nullptr)
          << file.name << " includes " << include << ", which is not embedded";
    }
  }
}

TEST(EmbeddedFiles, HoldTheEntryOfEveryFamilyAndTheCombine) {
  for (const Family& family : families()) {
    EXPECT_NE(find_file(family.entry_file), nullptr) << family.entry_file;
  }
  EXPECT_NE(find_file("templates/combine.cuh"), nullptr);
}

TEST(EmbeddedFiles, AreTheWholeFilesByteForByte) {
  const EmbeddedFile* file = find_file("templates/int_types.h");
  ASSERT_NE(file, nullptr);
  EXPECT_TRUE(file->text.starts_with("// "));
  EXPECT_TRUE(file->text.ends_with("}  // namespace attune\n"));
}

}  // namespace
}  // namespace attune
