#include "cache/database_file.h"

#include <gtest/gtest.h>

#include "cache/schema.h"
#include "tests/cache/fixtures.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using testing::TempDir;

// Locks by files instead of fcntl and has no shared memory, as some network file systems.
constexpr const char* kNoSharedMemory = "unix-dotfile";

std::string journal_mode(DatabaseFile& file) {
  return file.db->execAndGet("PRAGMA journal_mode").getString();
}

TEST(DatabaseFile, UsesAWriteAheadLogOnALocalFileSystem) {
  TempDir dir;
  if (is_network_file_system(dir.path())) GTEST_SKIP() << "the temporary folder is not local";
  DatabaseFile file = open_database(dir / "tune.db", {});
  EXPECT_EQ(journal_mode(file), "wal");
  EXPECT_EQ(file.access, Access::kReadWrite);
}

TEST(DatabaseFile, FallsBackToARollbackJournalWithoutSharedMemory) {
  TempDir dir;
  DatabaseFile file = open_database(dir / "tune.db", {}, kNoSharedMemory);
  EXPECT_EQ(journal_mode(file), "delete");
  EXPECT_EQ(schema_version(*file.db), kSchemaVersion);
}

TEST(DatabaseFile, OpensAFileWithALogWhereThereIsNoSharedMemory) {
  TempDir dir;
  const fs::path path = dir / "tune.db";
  open_database(path, {}).db->exec("INSERT INTO candidates (text) VALUES ('a')");
  {
    DatabaseFile file = open_database(path, {}, kNoSharedMemory);
    EXPECT_EQ(journal_mode(file), "delete");
    EXPECT_EQ(file.db->execAndGet("SELECT count(*) FROM candidates").getInt(), 1);
    file.db->exec("INSERT INTO candidates (text) VALUES ('b')");
    // Normal locking again: others get in.
    DatabaseFile second = open_database(path, {}, kNoSharedMemory);
    EXPECT_EQ(second.db->execAndGet("SELECT count(*) FROM candidates").getInt(), 2);
  }
  DatabaseFile local = open_database(path, {});
  EXPECT_EQ(local.db->execAndGet("SELECT count(*) FROM candidates").getInt(), 2);
}

TEST(DatabaseFile, TakesPathsThatLookLikeAnUri) {
  TempDir dir;
  for (const char* name :
       {"a?mode=memory.db", "50%20.db", "a#b.db", "file:x.db", "blank name.db"}) {
    const fs::path path = dir / name;
    open_database(path, {}).db->exec("INSERT INTO candidates (text) VALUES ('a')");
    EXPECT_TRUE(fs::exists(path)) << name;
    DatabaseFile read = open_database_read_only(path);
    EXPECT_EQ(read.db->execAndGet("SELECT count(*) FROM candidates").getInt(), 1) << name;
  }
}

TEST(DatabaseFile, ReadOnlyNeitherWritesNorLeavesFiles) {
  TempDir dir;
  const fs::path path = dir / "tune.db";
  {
    DatabaseFile file = open_database(path, {});
    file.db->exec("PRAGMA journal_mode = DELETE");
  }
  const std::string before = testing::read_file(path);
  {
    DatabaseFile file = open_database_read_only(path);
    EXPECT_EQ(file.access, Access::kReadOnly);
    EXPECT_THROW(file.db->exec("INSERT INTO candidates (text) VALUES ('a')"), SQLite::Exception);
  }
  EXPECT_EQ(testing::read_file(path), before);
  EXPECT_EQ(testing::files_with(dir.path(), "tune").size(), 1u);
}

TEST(DatabaseFile, EnforcesForeignKeys) {
  DatabaseFile file = open_memory_database();
  EXPECT_THROW(file.db->exec("INSERT INTO binary_kernels VALUES (99, 0, 's', 0, 0, 0, 0, 0)"),
               SQLite::Exception);
}

}  // namespace
}  // namespace attune
