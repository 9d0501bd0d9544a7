#include "cli/file_system.h"

#include <unistd.h>

#include <iterator>

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/support/temporary_folder.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

auto count_files(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

TEST(FileSystem, NamesWhatAMissingPathWouldLieOn) {
  EXPECT_EQ(file_system_of("/proc/does/not/exist"), file_system_of("/proc"));
  EXPECT_NE(file_system_of("/tmp/a/b/c"), "unknown");
}

TEST(FileSystem, SaysWhetherAMissingFileCouldBeCreated) {
  EXPECT_TRUE(may_write("/tmp/attune-no-such-folder/tune.db"));
  if (geteuid() == 0) return;  // root may write everywhere
  EXPECT_FALSE(may_write("/proc/no-such-folder/tune.db"));
}

TEST(ReplaceFile, WritesAWholeFileAndLeavesNothingBesideIt) {
  const TemporaryFolder folder;
  replace_file(folder / "report.html", "first");
  replace_file(folder / "report.html", "second");
  EXPECT_EQ(read_file(folder / "report.html"), "second");
  EXPECT_EQ(count_files(folder.path()), 1);
}

TEST(ReplaceFile, FollowsALink) {
  const TemporaryFolder folder;
  folder.write("kept/real.html", "old");
  fs::create_symlink(folder / "kept/real.html", folder / "link.html");
  replace_file(folder / "link.html", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link.html"));
  EXPECT_EQ(read_file(folder / "kept/real.html"), "new");
}

TEST(ReplaceFile, RefusesAFolderAndNamesWhatItCannotWrite) {
  const TemporaryFolder folder;
  EXPECT_THROW(replace_file(folder.path(), "x"), InvalidArgument);
  try {
    replace_file(folder / "no/such/folder.html", "x");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no/such/folder.html error=No such file"),
              std::string::npos)
        << error.what();
  }
}

TEST(ReplaceFile, KeepsTheEarlierFileWhenTheDiskIsFull) {
  EXPECT_THROW(replace_file("/dev/full", "x"), Error);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

}  // namespace
}  // namespace attune
