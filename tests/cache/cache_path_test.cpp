#include <gtest/gtest.h>

#include "cache/tune_store.h"

namespace attune {
namespace {

TEST(CachePath, TakesTheFirstSourceThatIsSet) {
  EXPECT_EQ(cache_path("a/b.db", "/dir", "/xdg", "/home/u"), "a/b.db");
  EXPECT_EQ(cache_path("", "/dir", "/xdg", "/home/u"), "/dir/tune.db");
  EXPECT_EQ(cache_path("", "", "/xdg", "/home/u"), "/xdg/attune/tune.db");
  EXPECT_EQ(cache_path("", "", "", "/home/u"), "/home/u/.cache/attune/tune.db");
}

TEST(CachePath, IsEmptyWhenNothingIsSet) { EXPECT_TRUE(cache_path("", "", "", "").empty()); }

TEST(CachePath, NeverLeadsToTheWorkingDirectoryByAccident) {
  EXPECT_EQ(cache_path("", "", "relative", "/home/u"), "/home/u/.cache/attune/tune.db");
  EXPECT_TRUE(cache_path("", "", "relative", "also/relative").empty());
}

TEST(CachePath, KeepsAFolderThatTheUserNamedRelatively) {
  EXPECT_EQ(cache_path("", "here", "", ""), "here/tune.db");
}

}  // namespace
}  // namespace attune
