// The inside of a TuneStore: its connection, its lock and what happens when the file fails.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cache/database_file.h"
#include "cache/tune_store.h"

namespace attune {

struct TuneStore::State {
  DatabaseFile file;
  Warn warn;
  bool tolerant = false;  // open_or_memory: failures of the environment end in memory, not a throw

  std::mutex mutex;  // guards all of this struct
  std::set<std::string> given_warnings;
  std::vector<std::string> pending_warnings;

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

  template <typename Work>
  void write(Work&& work) {
    locked([&] {
      if (!may_write()) return;
      attempt("cannot write tuning cache", [&](SQLite::Database& db) {
        SQLite::Transaction transaction(db, SQLite::TransactionBehavior::IMMEDIATE);
        work(db);
        transaction.commit();
      });
    });
  }

  // Throws CacheError when the file may only be read.
  void require_writable() const;

  // Whether a write can go anywhere. Opens the file again when it or its log vanished: writes to
  // deleted files succeed and are lost.
  bool may_write();
  // Replaces a damaged or failing database. Throws CacheError where that is not to be done.
  void recover(std::string_view what, const SQLite::Exception& error);
  // Opens the path again, after moving the damaged file aside unless another process did.
  void reopen(bool damaged);
  void use_memory(const std::string& reason);
};

}  // namespace attune
