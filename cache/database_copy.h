// Copies of a whole database as one file, complete or not there.
#pragma once

#include <filesystem>
#include <string>

#include <SQLiteCpp/SQLiteCpp.h>

#include "cache/connection.h"

namespace attune {

// Writes the file beside its final name first. Throws CacheError, also when `target` exists, and
// SQLite::Exception; never leaves a partial file under the final name.
void write_copy(SQLite::Database& db, const std::filesystem::path& target);

// Keeps a copy of a database of an older schema as <path>.schema-<version>; an earlier one stays.
void back_up_schema(SQLite::Database& db, const std::string& path);

// The database in memory, upgraded: for files that are only read.
MemoryCopy upgraded_copy(SQLite::Database& db, const std::string& path);

}  // namespace attune
