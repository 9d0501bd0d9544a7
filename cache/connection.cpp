#include "cache/connection.h"

#include <atomic>

#include <SQLiteCpp/Backup.h>
#include <fmt/format.h>

namespace attune {

std::unique_ptr<SQLite::Database> connect(const std::string& name, int flags,
                                          const std::string& vfs) {
  auto db = std::make_unique<SQLite::Database>(name, flags | SQLite::OPEN_URI, kBusyTimeoutMs, vfs);
  // An attached or shipped file is not trusted to call functions from its schema.
  db->exec("PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON");
  return db;
}

MemoryCopy copy_to_memory(SQLite::Database& db) {
  // Databases of one name are one database, as long as a connection to it lives.
  static std::atomic<unsigned long> num_copies = 0;
  MemoryCopy copy;
  copy.uri = fmt::format("file:attune-copy-{}?mode=memory&cache=shared", num_copies++);
  copy.db = connect(copy.uri, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  SQLite::Backup(*copy.db, db).executeStep(-1);
  return copy;
}

}  // namespace attune
