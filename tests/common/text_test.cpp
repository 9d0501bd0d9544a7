#include "common/text.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace attune {
namespace {

using Parts = std::vector<std::string_view>;

TEST(ParseInt, ReadsWholeDecimalNumbers) {
  EXPECT_EQ(parse_int("0"), 0);
  EXPECT_EQ(parse_int("007"), 7);
  EXPECT_EQ(parse_int("-12"), -12);
  EXPECT_EQ(parse_int("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(parse_int("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
}

TEST(ParseInt, IsEmptyOnAnyOtherText) {
  for (const char* text : {"", "-", "+1", " 1", "1 ", "1.0", "1e3", "0x10", "1,000", "--1", "one",
                           "9223372036854775808", "-9223372036854775809"}) {
    EXPECT_EQ(parse_int(text), std::nullopt) << "'" << text << "'";
  }
}

TEST(ParseInt, ReadsOnlyItsPartOfALongerText) {
  const std::string_view text = "b1234";
  EXPECT_EQ(parse_int(text.substr(1, 2)), 12);
}

TEST(Split, KeepsEmptyParts) {
  EXPECT_EQ(split("a//b", '/'), (Parts{"a", "", "b"}));
  EXPECT_EQ(split("/", '/'), (Parts{"", ""}));
  EXPECT_EQ(split("", '/'), (Parts{""}));
  EXPECT_EQ(split("abc", '/'), (Parts{"abc"}));
  EXPECT_EQ(split("a-b-c", '-'), (Parts{"a", "b", "c"}));
}

TEST(Digest, HasAStableTextForm) {
  EXPECT_EQ((Digest{0x0123456789abcdef, 0xff}.text()), "0123456789abcdef00000000000000ff");
  EXPECT_EQ(Digest{}.text(), std::string(32, '0'));
  // Published value of XXH3_128bits over no bytes.
  EXPECT_EQ(digest_of("").text(), "99aa06d3014798d86001c324468d497f");
}

TEST(Digest, RoundTripsThroughItsText) {
  const Digest digest = digest_of("attune");
  EXPECT_EQ(Digest::parse(digest.text()), digest);
}

TEST(Digest, RefusesAnyOtherText) {
  const std::string good = digest_of("attune").text();
  std::string upper = good;
  upper[0] = 'A';
  for (const std::string& text :
       {std::string(), good.substr(1), good + "0", upper, "g" + good.substr(1),
        " " + good.substr(1), "-" + good.substr(1), "0x" + good.substr(2)}) {
    EXPECT_EQ(Digest::parse(text), std::nullopt) << "'" << text << "'";
  }
}

TEST(Digest, DependsOnEveryByteAndOnTheLength) {
  EXPECT_NE(digest_of("attune"), digest_of("attunf"));
  EXPECT_NE(digest_of(std::string(1, '\0')), digest_of(std::string(2, '\0')));
}

}  // namespace
}  // namespace attune
