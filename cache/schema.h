// Every line of DDL of the tuning cache, its version and its migrations.
#pragma once

#include <span>
#include <string>

namespace SQLite {
class Database;
}

namespace attune {

constexpr int kSchemaVersion = 2;
// PRAGMA application_id of a tuning cache, "atun": tells it from the database of another program.
constexpr int kApplicationId = 0x6174756e;

// Brings a database from the version before to `version`.
struct Migration {
  int version;
  const char* sql;
};

// All migrations, by version from 1 to kSchemaVersion.
std::span<const Migration> migrations();

// PRAGMA user_version; 0 for an empty database.
int schema_version(SQLite::Database& db);

// Brings the database to the version of the last step, in one transaction, and marks it as a tuning
// cache. Does not write when it is there already. Throws CacheError for a newer schema and for a
// database of another program.
void migrate(SQLite::Database& db, const std::string& path,
             std::span<const Migration> steps = migrations());

// Throws CacheError for a newer schema and for a database of another program. Never writes.
void require_known_schema(SQLite::Database& db, const std::string& path);

// Never writes. Throws CacheError for a schema other than this one and for a database of another
// program; SQLite::Exception with SQLITE_CORRUPT when tables are missing.
void require_current_schema(SQLite::Database& db, const std::string& path);

}  // namespace attune
