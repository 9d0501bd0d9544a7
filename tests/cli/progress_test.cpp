#include "cli/progress.h"

#include <algorithm>
#include <sstream>

#include <gtest/gtest.h>

namespace attune {
namespace {

long count(const std::string& text, char letter) {
  return std::count(text.begin(), text.end(), letter);
}

TEST(Progress, WritesPlainLinesAtABoundedRate) {
  std::ostringstream out;
  double now = 100;
  Progress progress(out, false, [&] { return now; });
  for (std::size_t done = 1; done <= 10000; ++done) {
    now += 0.01;  // 100 s in all
    progress.update({"time", "splitkv/m16n64s2w8/x33", done, 10000});
  }
  // The first, each tenth, the last.
  EXPECT_GE(count(out.str(), '\n'), 10);
  EXPECT_LE(count(out.str(), '\n'), 12);
  EXPECT_EQ(count(out.str(), '\r'), 0);
  EXPECT_NE(out.str().find("time 10000/10000"), std::string::npos);
}

TEST(Progress, StaysQuietForQuickPhasesAndSpeaksUpInSlowOnes) {
  std::ostringstream out;
  double now = 1;
  Progress progress(out, false, [&] { return now; });
  for (int phase = 0; phase < 100; ++phase) {
    progress.update({phase % 2 == 0 ? "verify" : "time", "", 1, 100});
    now += 0.01;
  }
  EXPECT_EQ(count(out.str(), '\n'), 1);
  now += 31;
  progress.update({"time", "", 2, 100});
  EXPECT_EQ(count(out.str(), '\n'), 2);
}

TEST(Progress, RewritesOneShortLineOnATerminal) {
  std::ostringstream out;
  double now = 5;
  Progress progress(out, true, [&] { return now; });
  now += 1;
  progress.update({"compile", std::string(200, 'x'), 1, 4});
  now += 2;
  progress.update({"compile", "y", 3, 4});
  EXPECT_EQ(count(out.str(), '\n'), 0);
  EXPECT_EQ(count(out.str(), '\r'), 2);
  EXPECT_EQ(out.str().find(std::string(80, 'x')), std::string::npos);
  EXPECT_NE(out.str().find("compile 3/4, 3.0 s, 1.0 s left  y"), std::string::npos) << out.str();
  progress.clear();
  EXPECT_TRUE(out.str().ends_with("\r\033[K"));
}

TEST(Progress, LeavesAnUnknownTotalOut) {
  std::ostringstream out;
  Progress progress(out, false, [] { return 1.0; });
  progress.update({"time", "", 7, 0});
  EXPECT_EQ(out.str(), "time 7, 0.0 s\n");
}

TEST(Progress, WritesElapsedTimes) {
  EXPECT_EQ(elapsed_text(4.24), "4.2 s");
  EXPECT_EQ(elapsed_text(65), "1 min 05 s");
  EXPECT_EQ(elapsed_text(2 * 3600 + 7 * 60), "2 h 07 min");
}

}  // namespace
}  // namespace attune
