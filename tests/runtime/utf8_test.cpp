#include "runtime/utf8.h"

#include <gtest/gtest.h>

namespace attune {
namespace {

std::string encoded(unsigned code) {
  const auto trail = [&](unsigned shift) {
    return static_cast<char>(0x80 | (code >> shift & 0x3f));
  };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xc0 | code >> 6), trail(0)};
  if (code < 0x10000) return {static_cast<char>(0xe0 | code >> 12), trail(6), trail(0)};
  return {static_cast<char>(0xf0 | code >> 18), trail(12), trail(6), trail(0)};
}

TEST(Utf8, EveryCharacterIsWholeAndItsBeginningsArePartial) {
  for (unsigned code = 0; code < 0x110000; ++code) {
    const std::string bytes = encoded(code);
    const Utf8Part part = first_utf8_part(bytes + "x");
    if (code >= 0xd800 && code < 0xe000) {
      ASSERT_EQ(part.kind, Utf8Kind::kMalformed) << code;
      continue;
    }
    ASSERT_EQ(part.kind, Utf8Kind::kCharacter) << code;
    ASSERT_EQ(part.num_bytes, bytes.size()) << code;
    for (std::size_t length = 1; length < bytes.size(); ++length) {
      const Utf8Part beginning = first_utf8_part(bytes.substr(0, length));
      ASSERT_EQ(beginning.kind, Utf8Kind::kPartial) << code;
      ASSERT_EQ(beginning.num_bytes, length) << code;
    }
  }
}

// Of the Unicode standard, section 3.9, "U+FFFD Substitution of Maximal Subparts".
TEST(Utf8, MalformedPartsAreReplacedOneByOne) {
  const std::string r(kReplacementCharacter);
  EXPECT_EQ(valid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(valid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(valid_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(valid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(valid_utf8("a\xE2\x82"), "a" + r);
  EXPECT_EQ(valid_utf8(""), "");
}

TEST(Utf8, MarksStandForSpaces) {
  EXPECT_EQ(marks_of_spaces("  a b "), "\u2581\u2581a\u2581b\u2581");
  EXPECT_EQ(spaces_of_marks("\u2581a\u2581\u2581"), " a  ");
  EXPECT_EQ(marks_of_spaces("ab"), "ab");
}

}  // namespace
}  // namespace attune
