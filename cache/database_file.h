// Opens the SQLite database of the tuning cache: journal mode, read-only files, damage, migration.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <SQLiteCpp/SQLiteCpp.h>

#include "cache/cache_directory.h"
#include "cache/tune_store.h"
#include "common/error.h"

namespace attune {

enum class Access { kReadWrite, kReadOnly, kMemory };

struct DatabaseFile {
  std::unique_ptr<SQLite::Database> db;
  Access access = Access::kMemory;
  std::string path;  // absolute; ":memory:"
  std::string uri;   // to attach it elsewhere
  std::optional<FileIdentity> identity;
  std::optional<FileIdentity> log_identity;  // of <path>-wal, once open for writing
};
// Whether somebody moved, deleted or replaced the file or its log: writes would be lost.
bool has_lost_its_file(const DatabaseFile& file);

// Opens or creates the file and migrates it; see TuneStore::open. `vfs` names SQLite's access to
// the operating system, empty for the usual one.
DatabaseFile open_database(const std::filesystem::path& path, const Warn& warn,
                           const std::string& vfs = {});
DatabaseFile open_memory_database();
// Opens an existing cache and never writes to it; one of an older schema is upgraded in memory.
DatabaseFile open_database_read_only(const std::filesystem::path& path);
// The same for a short look that changes no file and leaves none beside it. Throws CacheError.
DatabaseFile open_database_unchanged(const std::filesystem::path& path);
// Its rows in memory, to change them there; the file stays as open_database_unchanged leaves it.
// Throws CacheError.
DatabaseFile open_database_copy(const std::filesystem::path& path);
// A cache that nobody writes while it is open: no locks, no files beside it. Throws CacheError.
DatabaseFile open_base(const std::filesystem::path& path, const Warn& warn);

// Whether the status says that the file itself is damaged.
bool is_damage(const SQLite::Exception& error);
// Closes the database and moves its file aside with one warning, unless another process has done
// so.
void move_damaged_aside(DatabaseFile damaged, const Warn& warn);

// The error with the path, SQLite's status and what to do about it.
CacheError cache_error(std::string_view what_failed, const std::string& path,
                       const SQLite::Exception& error);

}  // namespace attune
