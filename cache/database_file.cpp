#include "cache/database_file.h"

#include <chrono>
#include <fstream>
#include <system_error>
#include <thread>

#include <fmt/format.h>
#include <sqlite3.h>

#include "cache/connection.h"
#include "cache/database_copy.h"
#include "cache/schema.h"
#include "jit/host/private_folder.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMemoryPath = ":memory:";

std::string log_path(const std::string& path) { return path + "-wal"; }

int primary_code(const SQLite::Exception& error) { return error.getErrorCode() & 0xff; }

// "file:" form of a path, so that SQLite takes options with it.
std::string uri_of(const std::string& path, std::string_view options) {
  std::string uri = "file:";
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#') {
      uri += fmt::format("%{:02x}", static_cast<unsigned>(c));
    } else {
      uri += c;
    }
  }
  return fmt::format("{}?{}", uri, options);
}

// Sets the journal mode and returns the one in force. SQLite does not use its busy handler here, so
// this waits itself.
std::string set_journal_mode(SQLite::Database& db, std::string_view mode) {
  using namespace std::chrono_literals;
  const std::string sql = fmt::format("PRAGMA main.journal_mode = {}", mode);
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(kBusyTimeoutMs);
  for (;;) {
    try {
      SQLite::Statement query(db, sql);
      query.executeStep();
      return query.getColumn(0).getString();
    } catch (const SQLite::Exception& error) {
      if (primary_code(error) != SQLITE_BUSY || std::chrono::steady_clock::now() > deadline) throw;
    }
    std::this_thread::sleep_for(5ms);
  }
}

// Whether the status is one that file systems without shared memory or locks give in WAL mode.
bool refuses_wal(const SQLite::Exception& error) {
  const int code = primary_code(error);
  return code == SQLITE_PROTOCOL || code == SQLITE_CANTOPEN || code == SQLITE_IOERR;
}

bool has_wal_header(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char header[20] = {};
  return file.read(header, sizeof header) && header[18] == 2;
}

std::unique_ptr<SQLite::Database> connect_with_wal(const std::string& path,
                                                   const std::string& vfs) {
  auto db = connect(path, SQLite::OPEN_READWRITE, vfs);
  schema_version(*db);  // the first read of a file with a log is what needs shared memory
  const bool has_log = db->execAndGet("PRAGMA main.journal_mode").getString() == "wal";
  if (!has_log && set_journal_mode(*db, "WAL") != "wal") return nullptr;
  schema_version(*db);
  db->exec("PRAGMA synchronous = NORMAL");
  return db;
}

std::unique_ptr<SQLite::Database> connect_with_rollback(const std::string& path,
                                                        const std::string& vfs) {
  auto db = connect(path, SQLite::OPEN_READWRITE, vfs);
  if (has_wal_header(path)) {
    // Exclusive locking reads a WAL without shared memory, once, to leave it.
    db->exec("PRAGMA main.locking_mode = EXCLUSIVE");
    set_journal_mode(*db, "DELETE");
    db->exec("PRAGMA main.locking_mode = NORMAL");
  } else {
    set_journal_mode(*db, "DELETE");
  }
  schema_version(*db);
  return db;
}

// `identity` of the file that was prepared: where another one takes its place meanwhile, its journal
// mode is in use by others and stays.
std::unique_ptr<SQLite::Database> connect_read_write(const std::string& path,
                                                     const std::optional<FileIdentity>& identity,
                                                     const std::string& vfs) {
  if (!is_network_file_system(fs::path(path).parent_path())) {
    try {
      if (auto db = connect_with_wal(path, vfs)) return db;
    } catch (const SQLite::Exception& error) {
      if (!refuses_wal(error) || file_identity(path) != identity) throw;
    }
  }
  return connect_with_rollback(path, vfs);
}

bool has_log(const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(log_path(path), error);
  return !error && bytes > 0;
}

DatabaseFile connect_read_only_as(const std::string& path, std::string_view options) {
  DatabaseFile file{
      nullptr, Access::kReadOnly, path, uri_of(path, options), file_identity(path), std::nullopt};
  file.db = connect(file.uri, SQLite::OPEN_READONLY);
  schema_version(*file.db);
  return file;
}

// Without locks and files beside it: right while nobody writes.
DatabaseFile connect_immutable(const std::string& path) {
  return connect_read_only_as(path, "mode=ro&immutable=1");
}

// SQLite reads a WAL database only with its -shm file or as immutable. The latter is right when
// nobody can have written since: no log beside it.
DatabaseFile connect_read_only(const std::string& path) {
  try {
    return connect_read_only_as(path, "mode=ro");
  } catch (const SQLite::Exception& error) {
    if (is_damage(error) || has_log(path)) throw;
    return connect_immutable(path);
  }
}

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// What file and log say together, in memory: SQLite would put the log's index beside them.
DatabaseFile read_to_memory(const std::string& path) {
  const PrivateFolder folder;
  const std::string copied = (folder.path() / "tune.db").string();
  for (const char* suffix : {"", "-wal", "-journal"}) {
    std::error_code error;
    if (!exists(path + suffix) || fs::copy_file(path + suffix, copied + suffix, error)) continue;
    throw CacheError("cannot read tuning cache",
                     fmt::format("path={}{} ({})", path, suffix, error.message()),
                     "make it readable, or choose another file with --cache");
  }
  MemoryCopy copy = copy_to_memory(*connect(copied, SQLite::OPEN_READWRITE));
  copy.db->exec("PRAGMA query_only = ON");
  return {std::move(copy.db),  Access::kReadOnly,   path,
          std::move(copy.uri), file_identity(path), std::nullopt};
}

// Changes no file, and none appears. Locks are respected where somebody has the file open.
DatabaseFile connect_unchanged(const std::string& path) {
  const bool is_wal = has_wal_header(path);
  if (is_wal && !has_log(path) && !exists(path + "-shm")) return connect_immutable(path);
  try {
    // Shared memory that may not be written is only read, and where nobody keeps it up to date SQLite
    // makes an index of the log of its own.
    return connect_read_only_as(path, is_wal ? "mode=ro&readonly_shm=1" : "mode=ro");
  } catch (const SQLite::Exception& error) {
    if (is_damage(error)) throw;
  }
  return read_to_memory(path);
}

// Rows of an older schema are read from a copy in memory.
DatabaseFile with_current_schema(DatabaseFile file) {
  require_known_schema(*file.db, file.path);
  const int found = schema_version(*file.db);
  if (found > 0 && found < kSchemaVersion) {
    MemoryCopy copy = upgraded_copy(*file.db, file.path);
    file.db = std::move(copy.db);
    file.uri = std::move(copy.uri);
  }
  require_current_schema(*file.db, file.path);
  return file;
}

// A cache of an older schema is kept as a copy beside it.
void upgrade(SQLite::Database& db, const std::string& path) {
  require_known_schema(db, path);
  const int found = schema_version(db);
  if (found > 0 && found < kSchemaVersion) back_up_schema(db, path);
  migrate(db, path);
}

std::string_view advice(int primary) {
  switch (primary) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      return "another process holds it, try again when that has finished";
    case SQLITE_FULL:
      return "free some disk space, or choose another file with --cache";
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return "make file and folder writable, or choose another file with --cache";
    case SQLITE_CONSTRAINT:
      return "the values break the rules of cache/schema.cpp, nothing was stored";
    default:
      return "choose another file with --cache";
  }
}

// A file without SQLite's first bytes is somebody else's, unless it is short or has a cache's name:
// a mistyped path must not move a user's file aside.
void refuse_foreign_file(const std::string& path, const SQLite::Exception& error) {
  constexpr std::string_view kMagic = "SQLite format 3";
  if (primary_code(error) != SQLITE_NOTADB || fs::path(path).extension() == ".db") return;
  std::ifstream file(path, std::ios::binary);
  std::string head(kMagic.size(), '\0');
  if (!file.read(head.data(), static_cast<std::streamsize>(head.size())) || head == kMagic) return;
  throw CacheError("the file is not a tuning cache", fmt::format("path={}", path),
                   "name another file with --cache; a cache's name ends in .db", SQLITE_NOTADB);
}

bool is_replaced(const DatabaseFile& file) {
  return !file.identity || file_identity(file.path) != file.identity;
}

void connect_current(DatabaseFile& file, const std::string& vfs) {
  file.db = connect_read_write(file.path, file.identity, vfs);
  upgrade(*file.db, file.path);
  require_current_schema(*file.db, file.path);
  file.log_identity = file_identity(log_path(file.path));
}

}  // namespace

bool has_lost_its_file(const DatabaseFile& file) {
  return is_replaced(file) ||
         (file.log_identity && file_identity(log_path(file.path)) != file.log_identity);
}

bool is_damage(const SQLite::Exception& error) {
  return primary_code(error) == SQLITE_CORRUPT || primary_code(error) == SQLITE_NOTADB;
}

CacheError cache_error(std::string_view what_failed, const std::string& path,
                       const SQLite::Exception& error) {
  const int extended = error.getExtendedErrorCode();
  return CacheError(what_failed,
                    fmt::format("path={} sqlite={} ({})", path, error.getErrorCode(), error.what()),
                    advice(primary_code(error)), extended > 0 ? extended : error.getErrorCode());
}

DatabaseFile open_memory_database() {
  DatabaseFile file{connect(kMemoryPath, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE),
                    Access::kMemory,
                    kMemoryPath,
                    kMemoryPath,
                    std::nullopt,
                    std::nullopt};
  migrate(*file.db, file.path);
  return file;
}

DatabaseFile open_database_read_only(const fs::path& path) {
  return with_current_schema(connect_read_only(fs::absolute(path).lexically_normal().string()));
}

DatabaseFile open_database_unchanged(const fs::path& path) {
  const std::string absolute = fs::absolute(path).lexically_normal().string();
  require_trusted_file(absolute);
  try {
    return with_current_schema(connect_unchanged(absolute));
  } catch (const SQLite::Exception& error) {
    throw cache_error("cannot read tuning cache", absolute, error);
  }
}

DatabaseFile open_database_copy(const fs::path& path) {
  DatabaseFile file = open_database_unchanged(path);
  try {
    MemoryCopy copy = copy_to_memory(*file.db);
    file.db = std::move(copy.db);
    file.uri = std::move(copy.uri);
    file.access = Access::kMemory;
    return file;
  } catch (const SQLite::Exception& error) {
    throw cache_error("cannot read tuning cache", file.path, error);
  }
}

DatabaseFile open_base(const fs::path& path, const Warn& warn) {
  const std::string absolute = fs::absolute(path).lexically_normal().string();
  require_trusted_file(absolute);
  if (has_log(absolute) && warn) {
    warn(
        fmt::format("a base of the tuning cache has a log, whose rows are not seen: path={}; open "
                    "it once with attune cache stats --cache, or ship an export of it",
                    absolute));
  }
  try {
    return with_current_schema(connect_immutable(absolute));
  } catch (const SQLite::Exception& error) {
    throw cache_error("cannot read a base of the tuning cache", absolute, error);
  }
}

DatabaseFile open_database(const fs::path& path, const Warn& warn, const std::string& vfs) {
  const std::string absolute = fs::absolute(path).lexically_normal().string();
  // A second damaged or vanished file in a row can come from another process, a third is the disk.
  constexpr int kMaxAttempts = 3;
  for (int attempt = 1;; ++attempt) {
    const bool is_last = attempt == kMaxAttempts;
    prepare_directory(fs::path(absolute).parent_path());
    const bool writable = prepare_file(absolute);
    DatabaseFile file{nullptr,
                      Access::kReadWrite,
                      absolute,
                      uri_of(absolute, "mode=rw"),
                      file_identity(absolute),
                      std::nullopt};
    try {
      if (!writable) return open_database_read_only(absolute);
      connect_current(file, vfs);
      if (is_last || !is_replaced(file)) return file;
    } catch (const SQLite::Exception& error) {
      // Another process may have moved the file aside at any moment since we looked at it.
      const bool replaced = is_replaced(file);
      if (!replaced) refuse_foreign_file(absolute, error);
      if (is_last || (!replaced && (!writable || !is_damage(error)))) {
        throw cache_error("cannot open tuning cache", absolute, error);
      }
      if (!replaced) move_damaged_aside(std::move(file), warn);
    }
  }
}

void move_damaged_aside(DatabaseFile damaged, const Warn& warn) {
  damaged.db.reset();
  if (!damaged.identity) return;
  const auto aside = move_aside(damaged.path, *damaged.identity);
  if (aside && warn) {
    warn(fmt::format(
        "the tuning cache is damaged: path={}; it was moved to {} and a fresh one takes its place",
        damaged.path, aside->string()));
  }
}

}  // namespace attune
