// What NVRTC reads instead of the disk: the embedded files have to be closed under #include.
#include <algorithm>
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

// A kernel lets the next one start once it has waited for the one before: what the next one reads
// before its own wait (AttentionParams::overlap) was then written before this one began. But for the
// combine, which begins when its split kernel has waited, and the prologue, which has a test of its own.
TEST(EmbeddedFiles, LetTheNextKernelStartRightAfterTheirWait) {
  int num_kernels = 0;
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name.find("/ptx.") != std::string_view::npos) continue;  // the instructions themselves
    if (file.name == "templates/combine.cuh" || file.name == "templates/prologue.cuh") continue;
    constexpr std::string_view kStart = "griddepcontrol_launch_dependents();";
    constexpr std::string_view kWait = "griddepcontrol_wait();";
    for (std::size_t at = file.text.find(kStart); at != std::string_view::npos;
         at = file.text.find(kStart, at + 1)) {
      const std::size_t wait = file.text.rfind(kWait, at);
      ASSERT_NE(wait, std::string_view::npos) << file.name;
      // But for a comment, the statement in front.
      std::string_view between = file.text.substr(wait + kWait.size(), at - wait - kWait.size());
      while (!between.empty()) {
        const std::string_view line = between.substr(0, between.find('\n'));
        between.remove_prefix(std::min(line.size() + 1, between.size()));
        const std::size_t text = line.find_first_not_of(' ');
        EXPECT_TRUE(text == std::string_view::npos || line.substr(text).starts_with("//"))
            << file.name << ": " << line;
      }
      ++num_kernels;
    }
  }
  EXPECT_GE(num_kernels, 6);  // the families
}

// Only where its params say that the kernel in front has waited.
TEST(EmbeddedFiles, LetAttentionStartBeforeThePrologueHasWaitedWhereItsParamsSaySo) {
  const EmbeddedFile* const file = find_file("templates/prologue.cuh");
  ASSERT_NE(file, nullptr);
  const std::string_view both =
      "  if (p.overlap != 0) griddepcontrol_launch_dependents();\n"
      "  griddepcontrol_wait();\n"
      "  if (p.overlap == 0) griddepcontrol_launch_dependents();\n";
  const std::size_t at = file->text.find(both);
  ASSERT_NE(at, std::string_view::npos);
  const std::string rest =
      std::string(file->text.substr(0, at)) + std::string(file->text.substr(at + both.size()));
  EXPECT_EQ(rest.find("griddepcontrol_launch_dependents();"), std::string::npos);
}

TEST(EmbeddedFiles, AreTheWholeFilesByteForByte) {
  const EmbeddedFile* file = find_file("templates/int_types.h");
  ASSERT_NE(file, nullptr);
  EXPECT_TRUE(file->text.starts_with("// "));
  EXPECT_TRUE(file->text.ends_with("}  // namespace attune\n"));
}

}  // namespace
}  // namespace attune
