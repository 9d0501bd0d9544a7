// Caches that older versions wrote. tests/data/cache/schema-<n>.sql is a dump of each.
#include <cstdlib>

#include <gtest/gtest.h>

#include "cache/database_file.h"
#include "cache/schema.h"
#include "tests/cache/fixtures.h"
#include "tests/support/test_data.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using testing::files_with;
using testing::sample_binary;
using testing::sample_gpu;
using testing::serves;
using testing::Warnings;

class Upgrade : public ::testing::TestWithParam<int> {
 protected:
  // The cache as its version left it.
  fs::path older(const std::string& name = "tune.db") {
    const fs::path dump = test_data("cache/schema-" + std::to_string(GetParam()) + ".sql");
    const fs::path path = dir_ / name;
    SQLite::Database db(path.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    db.exec("PRAGMA foreign_keys = OFF");
    db.exec(testing::read_file(dump));
    EXPECT_EQ(schema_version(db), GetParam());
    fs::permissions(path, fs::perms(0600));
    return path;
  }
  static void expect_all(const TuneStore& store) {
    EXPECT_TRUE(serves(store));
    EXPECT_EQ(store.winners().size(), 2u);
    EXPECT_EQ(store.binaries().size(), 4u);
    EXPECT_EQ(store.find_binary(sample_binary("three").key)->cubin, sample_binary("three").cubin);
    EXPECT_EQ(store.find_compile_failure(digest_of("bad")), "error: no");
    EXPECT_EQ(store.rejections(sample_gpu(), testing::sample_problem(), testing::sample_toolchain())
                  .size(),
              1u);
    EXPECT_TRUE(store.verify().problems.empty());
  }
  std::string backup_name() const { return "tune.db.schema-" + std::to_string(GetParam()); }

  testing::TempDir dir_;
  Warnings warnings_;
};

TEST_P(Upgrade, KeepsEveryRowAndACopyOfWhatWasThere) {
  const fs::path path = older();
  const std::string rows = testing::dump(path);
  const auto store = TuneStore::open(path, warnings_.sink());
  EXPECT_EQ(store->stats().schema_version, kSchemaVersion);
  expect_all(*store);
  EXPECT_EQ(warnings_.count(), 0u);
  const fs::path backup = dir_ / backup_name();
  ASSERT_TRUE(fs::exists(backup));
  EXPECT_EQ(testing::dump(path, backup), rows);
  EXPECT_EQ(testing::dump(backup), rows);
  SQLite::Database copy(backup.string());
  EXPECT_EQ(schema_version(copy), GetParam());
  EXPECT_EQ(files_with(dir_.path(), ".part-").size(), 0u);
}

TEST_P(Upgrade, AnEarlierCopyStays) {
  testing::write_file(dir_ / backup_name(), "precious");
  expect_all(*TuneStore::open(older()));
  EXPECT_EQ(testing::read_file(dir_ / backup_name()), "precious");
}

TEST_P(Upgrade, OfAFileThatIsOnlyReadHappensInMemory) {
  const fs::path path = older();
  const std::string before = testing::read_file(path);
  expect_all(*TuneStore::open_unchanged(path));
  const auto over_base = TuneStore::open_in_memory(warnings_.sink(), {.bases = {path}});
  EXPECT_TRUE(serves(*over_base));
  EXPECT_EQ(over_base->winners().size(), 2u);
  EXPECT_EQ(testing::read_file(path), before);
  EXPECT_EQ(files_with(dir_.path(), "").size(), 1u);
  EXPECT_EQ(warnings_.count(), 0u);
}

TEST_P(Upgrade, OfACopyToTryChangesOnLeavesTheFile) {
  const fs::path path = older(), export_path = older("export.db");
  const auto before = testing::snapshot(dir_.path());
  {
    const auto copy = TuneStore::open_copy(path, warnings_.sink());
    expect_all(*copy);
    EXPECT_EQ(copy->import_from(export_path).winners_kept, 2);
    EXPECT_EQ(copy->prune({.gpu = sample_gpu().name}).winners, 2);
    EXPECT_TRUE(copy->winners().empty());
  }
  EXPECT_EQ(testing::snapshot(dir_.path()), before);
}

TEST_P(Upgrade, OfOneBaseIsNotTheUpgradeOfAnother) {
  const fs::path first = older("first.db"), second = older("second.db"), third = older("third.db");
  testing::tamper(second, "DELETE FROM winners");
  testing::tamper(third, "DELETE FROM winners");
  const auto store = TuneStore::open_in_memory(warnings_.sink(), {.bases = {first, second, third}});
  EXPECT_TRUE(serves(*store));
  EXPECT_EQ(store->winners().size(), 2u);
  EXPECT_EQ(warnings_.count(), 0u);
}

TEST_P(Upgrade, InMemoryObeysTheRulesOfEveryConnection) {
  const DatabaseFile file = open_database_unchanged(older());
  for (const char* rule : {"foreign_keys", "cell_size_check"}) {
    EXPECT_EQ(file.db->execAndGet(std::string("PRAGMA ") + rule).getInt(), 1) << rule;
  }
  EXPECT_EQ(file.db->execAndGet("PRAGMA trusted_schema").getInt(), 0);
}

TEST_P(Upgrade, OlderExportsCanBeImported) {
  const fs::path path = older("export.db");
  const auto store = TuneStore::open(dir_ / "target.db");
  EXPECT_EQ(store->import_from(path).winners_added, 2);
  EXPECT_TRUE(serves(*store));
  EXPECT_EQ(store->winners().at(0).second.created_at, "2026-01-02T03:04:05Z");
}

std::vector<int> older_versions() {
  std::vector<int> versions;
  for (int version = 1; version < kSchemaVersion; ++version) versions.push_back(version);
  return versions;
}
INSTANTIATE_TEST_SUITE_P(From, Upgrade, ::testing::ValuesIn(older_versions()));

}  // namespace
}  // namespace attune
