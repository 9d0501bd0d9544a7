#include "cache/database_copy.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <random>
#include <system_error>

#include <fmt/format.h>

#include "cache/schema.h"
#include "cache/sql.h"
#include "common/error.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

// A file name beside the target that is removed unless it was renamed. Processes of several
// containers may have one number.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& target)
      : path_(fmt::format("{}.part-{}-{:08x}", target.string(), ::getpid(),
                          std::random_device()())) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

[[noreturn]] void fail(const fs::path& path, int error) {
  throw CacheError(
      "cannot write a copy of the tuning cache",
      fmt::format("path={} ({})", path.string(), std::generic_category().message(error)),
      "choose another file");
}

void sync_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(path, errno);
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  // EINVAL: the file system has no fsync.
  if (error != 0 && error != EINVAL) fail(path, error);
}

// Gives the file its name, atomically and never over another file; returns errno.
int publish(const std::string& temporary, const fs::path& path) {
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) {
    return 0;
  }
  // EINVAL: the file system does not know the flag; then a link refuses to overwrite as well.
  if (errno == EINVAL && ::link(temporary.c_str(), path.c_str()) == 0) return 0;
  return errno;
}

void write_and_sync(SQLite::Database& db, const std::string& path) {
  execute(db, "VACUUM INTO ?", path);
  std::error_code ignored;  // a file system without modes
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write, ignored);
  sync_file(path);
}

}  // namespace

void write_copy(SQLite::Database& db, const fs::path& target) {
  if (fs::exists(fs::symlink_status(target))) fail(target, EEXIST);
  const TemporaryFile temporary(target);
  write_and_sync(db, temporary.path());
  if (const int error = publish(temporary.path(), target); error != 0) fail(target, error);
}

void back_up_schema(SQLite::Database& db, const std::string& path) {
  const int version = schema_version(db);
  const std::string target = fmt::format("{}.schema-{}", path, version);
  if (fs::exists(fs::symlink_status(target))) return;
  const TemporaryFile temporary(target);
  write_and_sync(db, temporary.path());
  SQLite::Database copy(temporary.path());
  if (schema_version(copy) != version) return;  // another process has upgraded it just now
  const int error = publish(temporary.path(), target);
  if (error != 0 && error != EEXIST) fail(target, error);
}

MemoryCopy upgraded_copy(SQLite::Database& db, const std::string& path) {
  MemoryCopy copy = copy_to_memory(db);
  migrate(*copy.db, path);
  copy.db->exec("PRAGMA query_only = ON");
  return copy;
}

}  // namespace attune
