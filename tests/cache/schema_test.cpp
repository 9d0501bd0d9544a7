#include "cache/schema.h"

#include <set>
#include <string>

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/cache/fixtures.h"

namespace attune {
namespace {

using testing::cache_error_of;

SQLite::Database memory() {
  return SQLite::Database(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
}

std::string schema_text(SQLite::Database& db) {
  std::string text;
  SQLite::Statement rows(db, "SELECT name, sql FROM sqlite_schema ORDER BY name");
  while (rows.executeStep()) {
    text += rows.getColumn(0).getString() + ": " + rows.getColumn(1).getString() + "\n";
  }
  return text;
}

int application_id(SQLite::Database& db) { return db.execAndGet("PRAGMA application_id").getInt(); }

TEST(Schema, StepsAreNumberedFromOneToTheCurrentVersion) {
  int expected = 1;
  for (const Migration& step : migrations()) EXPECT_EQ(step.version, expected++);
  EXPECT_EQ(expected, kSchemaVersion + 1);
}

TEST(Schema, MigratesAnEmptyDatabaseAndEveryOlderVersionToTheSameSchema) {
  SQLite::Database fresh = memory();
  migrate(fresh, "fresh");
  for (int older = 1; older <= kSchemaVersion; ++older) {
    SQLite::Database db = memory();
    migrate(db, "older", migrations().first(static_cast<std::size_t>(older)));
    EXPECT_EQ(schema_version(db), older);
    migrate(db, "older");
    EXPECT_EQ(schema_version(db), kSchemaVersion);
    EXPECT_EQ(schema_text(db), schema_text(fresh)) << "from version " << older;
    EXPECT_NO_THROW(require_current_schema(db, "older"));
  }
}

TEST(Schema, HasEveryTableAndAllForeignKeysResolve) {
  SQLite::Database db = memory();
  migrate(db, "a.db");
  for (const char* table :
       {"gpus", "problems", "candidates", "toolchains", "binaries", "binary_kernels", "admissions",
        "measurements", "winners", "rejections"}) {
    EXPECT_TRUE(db.tableExists(table)) << table;
    SQLite::Statement keys(
        db, std::string("SELECT \"table\" FROM pragma_foreign_key_list('") + table + "')");
    while (keys.executeStep()) EXPECT_TRUE(db.tableExists(keys.getColumn(0).getString())) << table;
  }
  for (const char* view : {"winner_list", "measurement_list", "rejection_list"}) {
    EXPECT_NO_THROW(db.exec(std::string("SELECT * FROM ") + view)) << view;
  }
}

TEST(Schema, FillsTheEvidenceOfOlderRowsInAsUnknown) {
  SQLite::Database db = memory();
  migrate(db, "a.db", migrations().first(1));
  db.exec(
      "INSERT INTO gpus VALUES (1, 'g', 'g', 'sm_90a', 1, 1);"
      "INSERT INTO problems VALUES (1, 'p', 'p', 1, 1);"
      "INSERT INTO candidates VALUES (1, 'c');"
      "INSERT INTO toolchains VALUES (1, 'd', 'n', 'o');"
      "INSERT INTO measurements VALUES (1, 1, 1, 1, 1, 4.5, 0.1, 9, 2, '13.0', 'then')");
  migrate(db, "a.db");
  SQLite::Statement row(db,
                        "SELECT median_us, low_us, high_us, num_dropped, sm_clock_mhz, throttle,"
                        " provisional, method FROM measurements");
  ASSERT_TRUE(row.executeStep());
  EXPECT_EQ(row.getColumn(0).getDouble(), 4.5);
  for (const int unknown : {1, 2, 3, 4, 6}) EXPECT_EQ(row.getColumn(unknown).getDouble(), 0);
  EXPECT_EQ(row.getColumn(5).getString(), "");
  EXPECT_EQ(row.getColumn(7).getInt(), 2);
}

// Made-up steps, to test the machinery beyond the versions that exist.
constexpr Migration kSteps[] = {
    {1, "CREATE TABLE a (x INTEGER); INSERT INTO a VALUES (7)"},
    {2, "ALTER TABLE a ADD COLUMN y INTEGER NOT NULL DEFAULT 8"},
    {3, "CREATE TABLE b AS SELECT x + y AS z FROM a"},
};

TEST(Schema, RunsOnlyTheStepsThatAreMissing) {
  for (std::size_t older = 1; older <= 3; ++older) {
    SQLite::Database db = memory();
    migrate(db, "a.db", std::span(kSteps).first(older));
    migrate(db, "a.db", kSteps);
    EXPECT_EQ(schema_version(db), 3);
    EXPECT_EQ(db.execAndGet("SELECT z FROM b").getInt(), 15) << "from version " << older;
    EXPECT_EQ(db.execAndGet("SELECT count(*) FROM a").getInt(), 1);
  }
}

TEST(Schema, MigratingAgainWritesNothing) {
  SQLite::Database db = memory();
  migrate(db, "a.db");
  const int before = db.getTotalChanges();
  const int cookie = db.execAndGet("PRAGMA schema_version").getInt();
  migrate(db, "a.db");
  EXPECT_EQ(db.getTotalChanges(), before);
  EXPECT_EQ(db.execAndGet("PRAGMA schema_version").getInt(), cookie);
}

TEST(Schema, LeavesTheOlderVersionWhenAStepFails) {
  constexpr Migration kBroken[] = {
      kSteps[0], {2, "CREATE TABLE c (x INTEGER); INSERT INTO nowhere VALUES (1)"}};
  SQLite::Database db = memory();
  migrate(db, "a.db", std::span(kSteps).first(1));
  const std::string before = schema_text(db);
  EXPECT_THROW(migrate(db, "a.db", kBroken), SQLite::Exception);
  EXPECT_EQ(schema_version(db), 1);
  EXPECT_EQ(schema_text(db), before);
  migrate(db, "a.db", kSteps);
  EXPECT_EQ(schema_version(db), 3);
}

TEST(Schema, RefusesANewerVersionAndSaysWhichOne) {
  SQLite::Database db = memory();
  migrate(db, "a.db");
  db.exec("PRAGMA user_version = 7");
  const std::string expected =
      "cannot open tuning cache: path=a.db schema=7 supported=" + std::to_string(kSchemaVersion) +
      "; upgrade attune, or choose another file with --cache";
  EXPECT_EQ(cache_error_of([&] { migrate(db, "a.db"); }), expected);
  EXPECT_EQ(cache_error_of([&] { require_current_schema(db, "a.db"); }), expected);
}

TEST(Schema, RefusesTheDatabaseOfAnotherProgramAndLeavesItAlone) {
  for (const char* content : {"CREATE TABLE bookmarks (url TEXT)", "PRAGMA user_version = 1",
                              "PRAGMA application_id = 252006675"}) {
    SQLite::Database db = memory();
    db.exec(content);
    const std::string before = schema_text(db);
    const int id = application_id(db);
    const std::string message = cache_error_of([&] { migrate(db, "a.db"); });
    EXPECT_NE(message.find("the database of another program"), std::string::npos) << message;
    EXPECT_EQ(schema_text(db), before);
    EXPECT_EQ(application_id(db), id);
  }
}

TEST(Schema, MarksTheDatabaseAsATuningCache) {
  SQLite::Database db = memory();
  migrate(db, "a.db");
  EXPECT_EQ(application_id(db), kApplicationId);
}

TEST(Schema, RequiringItNeverUpgrades) {
  SQLite::Database db = memory();
  const std::string message = cache_error_of([&] { require_current_schema(db, "a.db"); });
  EXPECT_NE(message.find("path=a.db schema=0 supported="), std::string::npos) << message;
  EXPECT_EQ(schema_text(db), "");
}

TEST(Schema, CallsAMissingTableDamage) {
  SQLite::Database db = memory();
  migrate(db, "a.db");
  db.exec("DROP TABLE rejections");
  EXPECT_THROW(require_current_schema(db, "a.db"), SQLite::Exception);
}

}  // namespace
}  // namespace attune
