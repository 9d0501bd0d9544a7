#include "cli/report.h"

#include <gtest/gtest.h>

namespace attune {
namespace {

TEST(Table, AlignsNumbersRightAndWordsLeft) {
  Table table({{"rank"}, {"config", Align::kLeft}, {"time_us"}});
  table.add_row({"1", "m16n64s2w4", "22.84"});
  table.add_row({"12", "m16n8", "123.96"});
  EXPECT_EQ(table.text(),
            "rank  config      time_us\n"
            "   1  m16n64s2w4    22.84\n"
            "  12  m16n8        123.96\n");
}

TEST(Table, EndsNoLineWithSpaces) {
  Table table({{"a"}, {"note", Align::kLeft}});
  table.add_row({"1", ""});
  table.add_row({"2", "slow"});
  EXPECT_EQ(table.text(), "a  note\n1\n2  slow\n");
}

TEST(Table, WithoutRowsIsItsHeader) {
  const Table table({{"a"}});
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(table.text(), "a\n");
}

TEST(Report, WritesBytesInTheLargestUnitThatFits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.0 KiB");
  EXPECT_EQ(bytes_text(150323855360), "140.0 GiB");
}

TEST(Report, TellsAges) {
  EXPECT_EQ(parse_utc("1970-01-02T00:00:01Z"), 86401);
  EXPECT_FALSE(parse_utc("1970-01-02T00:00:01"));
  EXPECT_FALSE(parse_utc(""));
  EXPECT_EQ(age_text("1970-01-01T00:00:00Z", 59), "59 s");
  EXPECT_EQ(age_text("1970-01-01T00:00:00Z", 3599), "59 min");
  EXPECT_EQ(age_text("1970-01-01T00:00:00Z", 47 * 3600), "47 h");
  EXPECT_EQ(age_text("1970-01-01T00:00:00Z", 12 * 86400), "12 d");
  EXPECT_EQ(age_text("1970-01-01T00:10:00Z", 0), "0 s");  // clocks differ between machines
  EXPECT_EQ(age_text("soon", 0), "?");
}

TEST(Report, CountsInWords) {
  EXPECT_EQ(count_text(0, "winner"), "0 winners");
  EXPECT_EQ(count_text(1, "binary"), "1 binary");
  EXPECT_EQ(count_text(2, "binary"), "2 binaries");
}

TEST(Report, ListsReasonsBehindTheirTotal) {
  EXPECT_EQ(reasons_text(0, "rejected", {}), "0 rejected");
  EXPECT_EQ(reasons_text(3, "rejected", {{"spill", 2}, {"wrong_result", 1}}),
            "3 rejected (spill 2, wrong result 1)");
}

}  // namespace
}  // namespace attune
