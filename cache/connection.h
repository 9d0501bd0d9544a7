// SQLite connections of the tuning cache, all set up alike.
#pragma once

#include <memory>
#include <string>

#include <SQLiteCpp/SQLiteCpp.h>

namespace attune {

// How long a call waits for another process before it fails.
constexpr int kBusyTimeoutMs = 10'000;

// `name` is a path, ":memory:" or a URI; `vfs` as of open_database.
std::unique_ptr<SQLite::Database> connect(const std::string& name, int flags,
                                          const std::string& vfs = {});

// A database in memory that other connections of this process can attach by its URI.
struct MemoryCopy {
  std::unique_ptr<SQLite::Database> db;
  std::string uri;
};
// What `db` has now.
MemoryCopy copy_to_memory(SQLite::Database& db);

}  // namespace attune
