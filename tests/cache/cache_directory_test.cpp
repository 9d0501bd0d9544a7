#include "cache/cache_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/cache/fixtures.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using testing::cache_error_of;
using testing::TempDir;

unsigned mode_of(const fs::path& path) {
  return static_cast<unsigned>(fs::status(path).permissions());
}

TEST(CacheDirectory, CreatesMissingFoldersForTheOwnerAlone) {
  TempDir dir;
  const mode_t umask_before = ::umask(0);
  prepare_directory(dir / "a/b/c");
  prepare_directory(dir / "a/b/c");
  ::umask(umask_before);
  EXPECT_EQ(mode_of(dir / "a"), 0700u);
  EXPECT_EQ(mode_of(dir / "a/b/c"), 0700u);
}

TEST(CacheDirectory, CreatesTheFileForTheOwnerAlone) {
  TempDir dir;
  const mode_t umask_before = ::umask(0);
  EXPECT_TRUE(prepare_file(dir / "tune.db"));
  ::umask(umask_before);
  EXPECT_EQ(mode_of(dir / "tune.db"), 0600u);
}

TEST(CacheDirectory, RefusesAFileOrADanglingLinkInPlaceOfAFolder) {
  TempDir dir;
  testing::write_file(dir / "file", "x");
  fs::create_symlink(dir / "nowhere", dir / "link");
  for (const char* name : {"file", "file/below", "link", "link/below"}) {
    const std::string message = cache_error_of([&] { prepare_directory(dir / name); });
    EXPECT_NE(message.find("the folder of the tuning cache: path="), std::string::npos) << message;
    EXPECT_NE(message.find("--cache"), std::string::npos) << message;
  }
  EXPECT_FALSE(fs::exists(dir / "nowhere"));
}

TEST(CacheDirectory, RefusesAFolderOrADanglingLinkInPlaceOfTheFile) {
  TempDir dir;
  fs::create_directory(dir / "folder");
  fs::create_symlink(dir / "nowhere", dir / "link");
  EXPECT_THROW(prepare_file(dir / "folder"), CacheError);
  EXPECT_THROW(prepare_file(dir / "link"), CacheError);
  EXPECT_FALSE(fs::exists(dir / "nowhere"));
}

TEST(CacheDirectory, RefusesAFolderAndAFileOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder to another user";
  TempDir dir;
  fs::create_directory(dir / "theirs");
  testing::write_file(dir / "their.db", "");
  ASSERT_EQ(::chown((dir / "theirs").c_str(), 12345, 12345), 0);
  ASSERT_EQ(::chown((dir / "their.db").c_str(), 12345, 12345), 0);
  const std::string message = cache_error_of([&] { prepare_directory(dir / "theirs"); });
  EXPECT_NE(message.find("owner=12345 user=0"), std::string::npos) << message;
  EXPECT_THROW(prepare_file(dir / "their.db"), CacheError);
}

TEST(CacheDirectory, RefusesWhatAnyoneMayWrite) {
  TempDir dir;
  testing::write_file(dir / "open.db", "");
  fs::permissions(dir / "open.db", fs::perms(0666));
  EXPECT_NE(cache_error_of([&] { prepare_file(dir / "open.db"); }).find("mode=0666"),
            std::string::npos);
  EXPECT_THROW(require_trusted_file(dir / "open.db"), CacheError);
  fs::create_directory(dir / "open");
  fs::permissions(dir / "open", fs::perms(0777));
  const std::string message = cache_error_of([&] { prepare_directory(dir / "open"); });
  EXPECT_NE(message.find("mode=0777"), std::string::npos) << message;
  EXPECT_NE(message.find("name a new folder inside it"), std::string::npos) << message;
  // That is its owner's alone, whatever is above it; and in a sticky folder only owners replace.
  EXPECT_NO_THROW(prepare_directory(dir / "open/mine"));
  EXPECT_EQ(mode_of(dir / "open/mine"), 0700u);
  fs::permissions(dir / "open", fs::perms(01777));
  EXPECT_NO_THROW(prepare_directory(dir / "open"));
}

TEST(CacheDirectory, RefusesALinkAndALogOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  TempDir dir;
  testing::write_file(dir / "mine.db", "");
  fs::create_symlink(dir / "mine.db", dir / "link.db");
  EXPECT_TRUE(prepare_file(dir / "link.db"));
  ASSERT_EQ(::lchown((dir / "link.db").c_str(), 12345, 12345), 0);
  EXPECT_THROW(prepare_file(dir / "link.db"), CacheError);
  // SQLite would replay it into the file.
  for (const char* suffix : {"-wal", "-journal"}) {
    const std::string log = (dir / "mine.db").string() + suffix;
    testing::write_file(log, "planted");
    EXPECT_TRUE(prepare_file(dir / "mine.db"));
    ASSERT_EQ(::chown(log.c_str(), 12345, 12345), 0);
    EXPECT_THROW(prepare_file(dir / "mine.db"), CacheError) << suffix;
    EXPECT_THROW(require_trusted_file(dir / "mine.db"), CacheError) << suffix;
    fs::remove(log);
  }
}

TEST(CacheDirectory, FollowsALinkToAFolderOfItsOwn) {
  TempDir dir;
  fs::create_directory(dir / "real");
  fs::create_directory_symlink(dir / "real", dir / "link");
  EXPECT_NO_THROW(prepare_directory(dir / "link"));
  EXPECT_TRUE(prepare_file(dir / "link/tune.db"));
  EXPECT_TRUE(fs::exists(dir / "real/tune.db"));
}

TEST(MoveAside, RenamesTheFileAndItsLog) {
  TempDir dir;
  const fs::path file = dir / "tune.db";
  testing::write_file(file, "data");
  testing::write_file(dir / "tune.db-wal", "log");
  testing::write_file(dir / "tune.db-shm", "index");
  const auto aside = move_aside(file, file_identity(file).value());
  ASSERT_TRUE(aside);
  EXPECT_EQ(testing::read_file(*aside), "data");
  EXPECT_EQ(testing::read_file(aside->string() + "-wal"), "log");
  EXPECT_TRUE(testing::files_with(dir.path(), "-shm").empty());
  EXPECT_FALSE(fs::exists(file));
  EXPECT_TRUE(aside->filename().string().starts_with("tune.db.damaged-2"));
}

TEST(MoveAside, LeavesAFileThatAnotherProcessHasPutThere) {
  TempDir dir;
  const fs::path file = dir / "tune.db";
  testing::write_file(file, "damaged");
  const FileIdentity damaged = file_identity(file).value();
  fs::rename(file, dir / "kept");  // keeps the inode in use
  testing::write_file(file, "fresh");
  EXPECT_FALSE(move_aside(file, damaged));
  EXPECT_EQ(testing::read_file(file), "fresh");
}

TEST(MoveAside, NeverOverwritesAnEarlierOne) {
  TempDir dir;
  const fs::path file = dir / "tune.db";
  for (int i = 0; i < 5; ++i) {
    testing::write_file(file, std::to_string(i));
    ASSERT_TRUE(move_aside(file, file_identity(file).value()));
  }
  EXPECT_EQ(testing::files_with(dir.path(), ".damaged-").size(), 5u);
}

TEST(UtcNow, IsIso8601ToTheSecond) {
  const std::string now = utc_now();
  ASSERT_EQ(now.size(), 20u);
  const std::string pattern = "dddd-dd-ddTdd:dd:ddZ";
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (pattern[i] == 'd') {
      EXPECT_TRUE(now[i] >= '0' && now[i] <= '9') << now;
    } else {
      EXPECT_EQ(now[i], pattern[i]) << now;
    }
  }
}

}  // namespace
}  // namespace attune
