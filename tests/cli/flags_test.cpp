#include "cli/flags.h"

#include <gtest/gtest.h>

#include "common/error.h"

namespace attune {
namespace {

TEST(Duration, ReadsNumbersWithAndWithoutUnits) {
  EXPECT_DOUBLE_EQ(parse_duration("90"), 90);
  EXPECT_DOUBLE_EQ(parse_duration("90s"), 90);
  EXPECT_DOUBLE_EQ(parse_duration("5m"), 300);
  EXPECT_DOUBLE_EQ(parse_duration("1h"), 3600);
  EXPECT_DOUBLE_EQ(parse_duration("1.5h"), 5400);
  EXPECT_DOUBLE_EQ(parse_duration("250ms"), 0.25);
}

TEST(Duration, RefusesEverythingElse) {
  for (const char* text :
       {"", "s", "0", "-1", "5 m", "5min", "1h30", "nan", "inf", "1e3", "0x10", "1h ", "٣"}) {
    EXPECT_THROW(parse_duration(text), InvalidArgument) << text;
  }
}

TEST(KvList, ReadsNumbersWithinTheLimit) {
  EXPECT_EQ(parse_kv_list("1"), std::vector<int>{1});
  EXPECT_EQ(parse_kv_list("1024,8192,131072"), (std::vector<int>{1024, 8192, 131072}));
  for (const char* text : {"", ",", "1,", "0", "-4", "a", "1 2", "1073741825"}) {
    EXPECT_THROW(parse_kv_list(text), InvalidArgument) << text;
  }
}

TEST(ProblemFlags, ResolveToEachProblemOnce) {
  ProblemFlags flags;
  const std::string text = "decode/b1/q1/kv1-64/h4x1/d64/contiguous/bf16";
  flags.problems = {text, "decode/b2/q1/kv1-64/h4x1/d64/contiguous/bf16", text};
  const auto problems = flags.resolve();
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems.front().text(), text);
  EXPECT_FALSE(flags.is_default());
}

TEST(ProblemFlags, ResolveToTheDefaultPresetWhenNothingIsNamed) {
  const ProblemFlags flags;
  EXPECT_TRUE(flags.is_default());
  EXPECT_EQ(flags.resolve().front().text(), "decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16");
}

}  // namespace
}  // namespace attune
