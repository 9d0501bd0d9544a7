#include "cache/store_state.h"

#include <fmt/format.h>
#include <sqlite3.h>

namespace attune {

void TuneStore::State::require_writable() const {
  if (file.access != Access::kReadOnly) return;
  throw CacheError("cannot write tuning cache", fmt::format("path={} (read-only)", file.path),
                   "make file and folder writable, or choose another file with --cache");
}

bool TuneStore::State::may_write() {
  if (file.access == Access::kReadOnly && tolerant) {
    note(fmt::format("the tuning cache is read-only: path={}; new results are not stored",
                     file.path));
    return false;
  }
  require_writable();
  if (file.access == Access::kReadWrite && has_lost_its_file(file)) {
    note(
        fmt::format("the tuning cache or its log was moved or deleted: path={}; it is opened again",
                    file.path));
    reopen(/*damaged=*/false);
  }
  return true;
}

void TuneStore::State::recover(std::string_view what, const SQLite::Exception& error) {
  const bool broken_rule = (error.getErrorCode() & 0xff) == SQLITE_CONSTRAINT;
  if (!broken_rule && file.access == Access::kReadWrite && is_damage(error)) {
    reopen(/*damaged=*/true);
  } else if (!broken_rule && file.access != Access::kMemory && tolerant) {
    use_memory(cache_error(what, file.path, error).what());
  } else {
    throw cache_error(what, file.path, error);
  }
}

void TuneStore::State::open_bases() {
  for (const std::filesystem::path& path : options.bases) {
    if (file.identity && file_identity(path) == file.identity) {
      // Read without locks, it would be seen half written.
      if (warn) {
        warn(fmt::format(
            "a base of the tuning cache is left out: path={} (this is the cache itself)",
            path.string()));
      }
      continue;
    }
    try {
      bases.push_back(attune::open_base(path, warn));
    } catch (const Error& error) {
      if (warn) warn(fmt::format("a base of the tuning cache is left out: {}", error.what()));
    }
  }
}

void TuneStore::State::limit_size(SQLite::Database& db, std::int64_t kept_id) {
  if (options.max_bytes == 0) return;
  const Evicted evicted = evict_binaries(db, options.max_bytes, kept_id);
  if (evicted.winners == 0) return;
  note(
      fmt::format("winners do not fit the tuning cache: path={} max_bytes={}; the longest unused "
                  "are dropped, raise ATTUNE_CACHE_MAX_SIZE",
                  file.path, options.max_bytes));
}

void TuneStore::State::write_uses() noexcept {
  if (used.empty() || file.access != Access::kReadWrite || !file.db || has_lost_its_file(file)) {
    return;
  }
  try {
    file.db->setBusyTimeout(0);
    SQLite::Transaction transaction(*file.db, SQLite::TransactionBehavior::IMMEDIATE);
    touch_binaries(*file.db, used);
    transaction.commit();
  } catch (...) {  // the next process that uses them notes it
  }
}

void TuneStore::State::reopen(bool damaged) {
  used.clear();  // ids of the file that is left
  const std::string path = file.path;
  try {
    if (damaged) move_damaged_aside(std::move(file), noter());
    file.db.reset();
    file = open_database(path, noter());
  } catch (const CacheError& error) {
    if (tolerant) return use_memory(error.what());
    // Misses until a write succeeds in opening the path again: no file has this identity.
    file = open_memory_database();
    file.access = Access::kReadWrite;
    file.path = path;
    file.identity = FileIdentity{};
    throw;
  }
}

void TuneStore::State::use_memory(const std::string& reason) {
  note(fmt::format("the tuning cache is kept in memory only: {}", reason));
  used.clear();
  const std::string path = file.path;
  file = open_memory_database();
  read_beneath(path);
}

void TuneStore::State::read_beneath(const std::filesystem::path& path) {
  if (!file_identity(path)) return;
  try {
    prepare_directory(std::filesystem::absolute(path).parent_path());
    require_trusted_file(path);
    DatabaseFile beneath = open_database_read_only(path);
    std::erase_if(bases, [&](const auto& base) { return base.identity == beneath.identity; });
    bases.insert(bases.begin(), std::move(beneath));
  } catch (const std::exception&) {  // there is nothing to read, and the store works without
  }
}

}  // namespace attune
