// The inside of a TuneStore: its connection, its lock and what happens when the file fails.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cache/database_file.h"
#include "cache/eviction.h"
#include "cache/tune_store.h"

namespace attune {

struct TuneStore::State {
  DatabaseFile file;
  std::vector<DatabaseFile> bases;  // asked after the file; without `db` once they have failed
  StoreOptions options;
  Warn warn;
  bool tolerant = false;  // open_or_memory: failures of the environment end in memory, not a throw

  std::mutex mutex;  // guards all of this struct
  std::set<std::string> given_warnings;
  std::vector<std::string> pending_warnings;
  std::set<std::int64_t> used;  // binaries of the file; the next write notes their use

  // Keeps a warning for the end of the call, unless it was given before.
  void note(const std::string& text) {
    if (given_warnings.insert(text).second) pending_warnings.push_back(text);
  }
  Warn noter() {
    return [this](const std::string& text) { note(text); };
  }

  // Runs `work` under the lock and gives the warnings after it.
  template <typename Work>
  auto locked(Work&& work) {
    struct GiveWarnings {
      State& state;
      std::vector<std::string> texts;
      ~GiveWarnings() {
        if (!state.warn) return;
        try {
          for (const std::string& text : texts) state.warn(text);
        } catch (...) {  // a warning that cannot be given is no reason to fail
        }
      }
    } after{*this, {}};
    const std::lock_guard lock(mutex);
    struct TakeWarnings {
      State& state;
      std::vector<std::string>& texts;
      ~TakeWarnings() { texts.swap(state.pending_warnings); }
    } take{*this, after.texts};
    return work();
  }

  // Runs `work` on the database, once more when that was replaced after a failure.
  template <typename Work>
  auto attempt(std::string_view what, Work&& work) {
    try {
      return work(*file.db);
    } catch (const SQLite::Exception& error) {
      recover(what, error);
    }
    try {
      return work(*file.db);
    } catch (const SQLite::Exception& error) {
      throw cache_error(what, file.path, error);
    }
  }

  // One snapshot: the rows of an answer belong together whatever other processes write.
  template <typename Work>
  auto read(Work&& work) {
    return locked([&] {
      return attempt("cannot read tuning cache", [&](SQLite::Database& db) {
        SQLite::Transaction snapshot(db);
        return work(db);
      });
    });
  }

  // Runs `work` on a base; empty when that fails, and then the base is out of use.
  template <typename Work>
  auto on_base(DatabaseFile& base, Work&& work) {
    std::optional<decltype(work(*base.db))> result;
    if (!base.db) return result;
    try {
      result = work(*base.db);
    } catch (const SQLite::Exception& error) {
      note(cache_error("a base of the tuning cache is left out", base.path, error).what());
      base.db.reset();
    }
    return result;
  }

  // The first answer of the file and its bases; `work` returns something like an optional, or a
  // container whose emptiness means no answer.
  template <typename Work, typename HasAnswer>
  auto read_first(Work&& work, HasAnswer&& has_answer) {
    return read([&](SQLite::Database& db) {
      auto answer = work(db);
      for (DatabaseFile& base : bases) {
        if (has_answer(answer)) break;
        if (auto of_base = on_base(base, work)) answer = *std::move(of_base);
      }
      return answer;
    });
  }

  template <typename Work>
  void write(Work&& work) {
    locked([&] {
      if (!may_write()) return;
      attempt("cannot write tuning cache", [&](SQLite::Database& db) {
        SQLite::Transaction transaction(db, SQLite::TransactionBehavior::IMMEDIATE);
        touch_binaries(db, used);
        work(db);
        transaction.commit();
      });
      used.clear();
    });
  }

  // Remembers that a binary of `db` was served.
  void use(SQLite::Database& db, std::int64_t binary_id) {
    if (&db == file.db.get() && is_use_due(db, binary_id)) used.insert(binary_id);
  }
  // Notes the last uses at the end, if that is possible at once.
  void write_uses() noexcept;
  // Keeps the size cap after `kept_id` was put.
  void limit_size(SQLite::Database& db, std::int64_t kept_id);
  void open_bases();

  // Throws CacheError when the file may only be read.
  void require_writable() const;

  // Whether a write can go anywhere. Opens the file again when it or its log vanished: writes to
  // deleted files succeed and are lost.
  bool may_write();
  // Replaces a damaged or failing database. Throws CacheError where that is not to be done.
  void recover(std::string_view what, const SQLite::Exception& error);
  // Opens the path again, after moving the damaged file aside unless another process did.
  void reopen(bool damaged);
  // Goes on in memory, and with the file beneath it where that can be read.
  void use_memory(const std::string& reason);
  // Makes a file that cannot be written the first base.
  void read_beneath(const std::filesystem::path& path);
};

}  // namespace attune
