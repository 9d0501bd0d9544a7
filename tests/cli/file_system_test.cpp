#include "cli/file_system.h"

#include <unistd.h>

#include <gtest/gtest.h>

namespace attune {
namespace {

TEST(FileSystem, NamesWhatAMissingPathWouldLieOn) {
  EXPECT_EQ(file_system_of("/proc/does/not/exist"), file_system_of("/proc"));
  EXPECT_NE(file_system_of("/tmp/a/b/c"), "unknown");
}

TEST(FileSystem, SaysWhetherAMissingFileCouldBeCreated) {
  EXPECT_TRUE(may_write("/tmp/attune-no-such-folder/tune.db"));
  if (geteuid() == 0) return;  // root may write everywhere
  EXPECT_FALSE(may_write("/proc/no-such-folder/tune.db"));
}

}  // namespace
}  // namespace attune
