#include "cli/plot.h"

#include <cmath>
#include <cstdio>

#include <gtest/gtest.h>

namespace attune {
namespace {

std::size_t count_of(const std::string& markup, const std::string& part) {
  std::size_t count = 0;
  for (auto at = markup.find(part); at != std::string::npos; at = markup.find(part, at + 1)) {
    ++count;
  }
  return count;
}

Plot two_series() {
  return {.title = "Times of <a>",
          .description = "1 to 2",
          .y_label = "µs",
          .log_y = true,
          .height = 200,
          .series = {{.kind = "floor", .line = {{1, 2}, {1024, 200}}},
                     {.kind = "winner",
                      .marker = Marker::kDisc,
                      .line = {{1, 4}, {1024, 300}},
                      .single = {{1024, 350}}}}};
}

TEST(Plot, DrawsEverySeriesWithItsMarkers) {
  const std::string markup = svg_of(two_series()).markup;
  EXPECT_EQ(count_of(markup, "<polyline"), 2u);
  EXPECT_EQ(count_of(markup, "<circle"), 3u);  // the single one too
  EXPECT_EQ(count_of(markup, "class=\"line floor\""), 1u);
}

TEST(Plot, SaysInWordsWhatItShows) {
  const std::string markup = svg_of(two_series()).markup;
  EXPECT_NE(markup.find("role=\"img\" aria-label=\"Times of &lt;a&gt;: 1 to 2\""),
            std::string::npos);
  EXPECT_NE(markup.find("<desc>1 to 2</desc>"), std::string::npos);
}

TEST(Plot, PutsLargerValuesToTheRightAndHigher) {
  const std::string markup = svg_of(two_series()).markup;
  double x[2], y[2];
  const auto at = markup.find("class=\"line winner\" points=\"");
  ASSERT_NE(at, std::string::npos);
  ASSERT_EQ(std::sscanf(markup.c_str() + at, "class=\"line winner\" points=\"%lf,%lf %lf,%lf\"",
                        &x[0], &y[0], &x[1], &y[1]),
            4);
  EXPECT_LT(x[0], x[1]);
  EXPECT_GT(y[0], y[1]);  // y grows downwards
  for (const double value : y) EXPECT_TRUE(0 <= value && value <= 200) << value;
}

TEST(Plot, OfOnePointOrNoneIsFinite) {
  Plot plot = two_series();
  plot.series = {{.kind = "winner", .marker = Marker::kDisc, .line = {{4096, 7}}}};
  EXPECT_EQ(svg_of(plot).markup.find("nan"), std::string::npos);
  EXPECT_NE(svg_of(plot).markup.find(">4K<"), std::string::npos);
  plot.series.clear();
  EXPECT_EQ(svg_of(plot).markup, "");
}

TEST(Plot, TicksAreRoundNumbers) {
  EXPECT_EQ(linear_ticks(0, 6.2, 3), (std::vector<double>{0, 5}));
  EXPECT_EQ(linear_ticks(-0.4, 1, 3), (std::vector<double>{0, 0.5, 1}));
  EXPECT_FALSE(std::signbit(linear_ticks(0, 1, 3).front()));
  EXPECT_EQ(log_ticks(1.6, 280, 8), (std::vector<double>{2, 5, 10, 20, 50, 100, 200}));
  EXPECT_EQ(log_ticks(0.5, 2000, 6), (std::vector<double>{1, 10, 100, 1000}));
  EXPECT_EQ(log_ticks(3.4, 8.9, 8), (std::vector<double>{4, 5, 6, 7, 8}));  // within a decade
}

TEST(Plot, LengthsAreWrittenShort) {
  EXPECT_EQ(length_text(131072), "128K");
  EXPECT_EQ(length_text(1024), "1K");
  EXPECT_EQ(length_text(1), "1");
  EXPECT_EQ(length_text(1500), "1500");
}

}  // namespace
}  // namespace attune
