// SQLite's access to files with faults of a test's choice: while one lives, every connection that is
// opened goes through it.
#pragma once

#include <sqlite3.h>

#include <algorithm>
#include <cstring>
#include <functional>

namespace attune::testing {

class FaultVfs {
 public:
  FaultVfs() : real_(sqlite3_vfs_find(nullptr)), vfs_(*real_) {
    vfs_.zName = "attune-faults";
    vfs_.pAppData = this;
    vfs_.szOsFile = static_cast<int>(sizeof(File)) + real_->szOsFile;
    vfs_.xOpen = &FaultVfs::open;
    vfs_.xSleep = [](sqlite3_vfs*, int us) { return us; };  // a wait for a lock takes no time
    sqlite3_vfs_register(&vfs_, 1);
  }
  FaultVfs(const FaultVfs&) = delete;
  FaultVfs& operator=(const FaultVfs&) = delete;
  ~FaultVfs() {
    sqlite3_vfs_unregister(&vfs_);
    sqlite3_vfs_register(real_, 1);
  }

  // The writes, syncs and truncations from number `fail_from` on (counted from 1) give `write_error`;
  // 0: none does.
  int fail_from = 0;
  int write_error = SQLITE_FULL;
  // What these calls give instead of the real answer; SQLITE_OK: the real answer.
  int lock_error = SQLITE_OK;         // of locks that exclude others
  int shared_lock_error = SQLITE_OK;  // of every lock
  int shared_memory_error = SQLITE_OK;
  int read_error = SQLITE_OK;
  std::function<void(int)> on_write;  // before write number n
  std::function<void(int)> on_open;   // before file number n is opened

  int num_writes = 0;
  int num_opens = 0;
  bool has_failed() const { return fail_from > 0 && num_writes >= fail_from; }

 private:
  struct File {
    sqlite3_file base;
    FaultVfs* owner;
    sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
  };
  static File& of(sqlite3_file* file) { return *reinterpret_cast<File*>(file); }
  static sqlite3_file* real(sqlite3_file* file) { return of(file).real(); }

  int count_write() {
    ++num_writes;
    if (on_write) on_write(num_writes);
    return has_failed() ? write_error : SQLITE_OK;
  }

  static int open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out) {
    auto* owner = static_cast<FaultVfs*>(vfs->pAppData);
    std::memset(file, 0, sizeof(File));
    of(file).owner = owner;
    ++owner->num_opens;
    if (owner->on_open) owner->on_open(owner->num_opens);
    const int status = owner->real_->xOpen(owner->real_, name, real(file), flags, out);
    if (real(file)->pMethods != nullptr) file->pMethods = &kMethods;
    return status;
  }

  using M = sqlite3_io_methods;
  static const M* methods(sqlite3_file* file) { return real(file)->pMethods; }
  static inline const M kMethods = {
      3,
      [](sqlite3_file* f) { return methods(f)->xClose(real(f)); },
      [](sqlite3_file* f, void* to, int n, sqlite3_int64 at) {
        const int error = of(f).owner->read_error;
        return error != SQLITE_OK ? error : methods(f)->xRead(real(f), to, n, at);
      },
      [](sqlite3_file* f, const void* from, int n, sqlite3_int64 at) {
        const int error = of(f).owner->count_write();
        return error != SQLITE_OK ? error : methods(f)->xWrite(real(f), from, n, at);
      },
      [](sqlite3_file* f, sqlite3_int64 n) { return methods(f)->xTruncate(real(f), n); },
      [](sqlite3_file* f, int flags) {
        const int error = of(f).owner->count_write();
        return error != SQLITE_OK ? error : methods(f)->xSync(real(f), flags);
      },
      [](sqlite3_file* f, sqlite3_int64* n) { return methods(f)->xFileSize(real(f), n); },
      [](sqlite3_file* f, int level) {
        const FaultVfs& faults = *of(f).owner;
        if (faults.shared_lock_error != SQLITE_OK) return faults.shared_lock_error;
        if (level >= SQLITE_LOCK_RESERVED && faults.lock_error != SQLITE_OK)
          return faults.lock_error;
        return methods(f)->xLock(real(f), level);
      },
      [](sqlite3_file* f, int level) { return methods(f)->xUnlock(real(f), level); },
      [](sqlite3_file* f, int* out) { return methods(f)->xCheckReservedLock(real(f), out); },
      [](sqlite3_file* f, int op, void* arg) { return methods(f)->xFileControl(real(f), op, arg); },
      [](sqlite3_file* f) { return methods(f)->xSectorSize(real(f)); },
      [](sqlite3_file* f) { return methods(f)->xDeviceCharacteristics(real(f)); },
      [](sqlite3_file* f, int page, int size, int extend, void volatile** out) {
        const int error = of(f).owner->shared_memory_error;
        return error != SQLITE_OK ? error : methods(f)->xShmMap(real(f), page, size, extend, out);
      },
      [](sqlite3_file* f, int offset, int n, int flags) {
        const FaultVfs& faults = *of(f).owner;
        const bool takes = (flags & SQLITE_SHM_LOCK) != 0;
        if (takes && faults.shared_lock_error != SQLITE_OK) return faults.shared_lock_error;
        if (takes && (flags & SQLITE_SHM_EXCLUSIVE) != 0 && faults.lock_error != SQLITE_OK) {
          return faults.lock_error;
        }
        return methods(f)->xShmLock(real(f), offset, n, flags);
      },
      [](sqlite3_file* f) { methods(f)->xShmBarrier(real(f)); },
      [](sqlite3_file* f, int remove) { return methods(f)->xShmUnmap(real(f), remove); },
      [](sqlite3_file* f, sqlite3_int64 at, int n, void** out) {
        return methods(f)->xFetch(real(f), at, n, out);
      },
      [](sqlite3_file* f, sqlite3_int64 at, void* page) {
        return methods(f)->xUnfetch(real(f), at, page);
      }};

  sqlite3_vfs* real_;
  sqlite3_vfs vfs_;
};

}  // namespace attune::testing
