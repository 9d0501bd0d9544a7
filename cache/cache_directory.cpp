#include "cache/cache_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "common/error.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr const char* kChooseAnother = "choose another file with --cache";
constexpr const char* kCannotTrust = "cannot trust the tuning cache";

std::string reason(int error) { return std::generic_category().message(error); }

void require_own(const fs::path& path, const struct stat& status) {
  if (status.st_uid == ::geteuid() || status.st_uid == 0) return;
  throw CacheError(
      kCannotTrust,
      fmt::format("path={} owner={} user={}", path.string(), status.st_uid, ::geteuid()),
      fmt::format("change its owner, or {}", kChooseAnother));
}

// In a sticky folder only the owner of a file can replace it.
void require_unwritable_by_others(const fs::path& path, const struct stat& status) {
  const bool is_sticky = S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0;
  if ((status.st_mode & S_IWOTH) == 0 || is_sticky) return;
  throw CacheError(kCannotTrust,
                   fmt::format("path={} mode={:04o}", path.string(), status.st_mode & 07777),
                   S_ISDIR(status.st_mode)
                       ? "anyone may put files there: chmod o-w it, or name a new folder inside it"
                       : "anyone may write it: chmod o-w it");
}

// The file, a link to it, and the logs that SQLite would replay into it.
void require_own_files(const fs::path& file, const struct stat& status) {
  require_own(file, status);
  require_unwritable_by_others(file, status);
  for (const char* suffix : {"", "-wal", "-journal"}) {
    const std::string name = file.string() + suffix;
    struct stat beside {};
    if (::lstat(name.c_str(), &beside) == 0) require_own(name, beside);
  }
}

// An open file that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Waits a bounded time for the folder's lock; the kernel drops it with the descriptor, so a killed
// holder leaves nothing behind. Going on without it (file systems without locks) is safe but for
// two processes that move the same damaged file in the same instant.
void lock_directory(const Descriptor& directory) {
  using namespace std::chrono_literals;
  const auto deadline = std::chrono::steady_clock::now() + 2s;
  while (::flock(directory.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK || std::chrono::steady_clock::now() > deadline) return;
    std::this_thread::sleep_for(5ms);
  }
}

std::tm utc_time() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  return parts;
}

void create_folders(const fs::path& directory) {
  if (::mkdir(directory.c_str(), S_IRWXU) == 0) return;
  if (errno == ENOENT && directory.has_parent_path() && directory.parent_path() != directory) {
    create_folders(directory.parent_path());
    if (::mkdir(directory.c_str(), S_IRWXU) == 0) return;
  }
  // EEXIST: another process was faster, or it is a dangling link, which the caller finds.
  if (errno == EEXIST) return;
  throw CacheError("cannot create the folder of the tuning cache",
                   fmt::format("path={} ({})", directory.string(), reason(errno)), kChooseAnother);
}

// <file>.damaged-20260131T235959Z, with -2, -3, ... when that name is taken.
fs::path free_damaged_name(const fs::path& file) {
  const std::tm t = utc_time();
  const std::string base =
      fmt::format("{}.damaged-{:04}{:02}{:02}T{:02}{:02}{:02}Z", file.string(), t.tm_year + 1900,
                  t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec);
  fs::path name = base;
  std::error_code ignored;
  for (int copy = 2; fs::exists(fs::symlink_status(name, ignored)); ++copy) {
    name = fmt::format("{}-{}", base, copy);
  }
  return name;
}

// A file that another process has moved aside since is not a forbidden one.
bool is_allowed(const fs::path& path, int mode) {
  return ::faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS) == 0 || errno == ENOENT;
}

// The status of the file, which is created where there is none.
struct stat find_or_create(const fs::path& file) {
  // Another process may create or move it aside between two steps, though hardly each time.
  constexpr int kMaxAttempts = 3;
  for (int attempt = 1;; ++attempt) {
    struct stat status {};
    if (::stat(file.c_str(), &status) == 0) return status;
    // O_EXCL does not follow a dangling link, which could lead anywhere.
    const Descriptor created(
        ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
    const int error = created.get() < 0 ? errno : 0;
    if (::stat(file.c_str(), &status) == 0) return status;
    if (attempt < kMaxAttempts && (error == 0 || error == EEXIST)) continue;
    throw CacheError("cannot create tuning cache",
                     fmt::format("path={} ({})", file.string(), reason(error)), kChooseAnother);
  }
}

}  // namespace

std::optional<FileIdentity> file_identity(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return FileIdentity{status.st_dev, status.st_ino};
}

void prepare_directory(const fs::path& directory) {
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) {
    create_folders(directory);
    if (::stat(directory.c_str(), &status) != 0) {
      throw CacheError("cannot use the folder of the tuning cache",
                       fmt::format("path={} ({})", directory.string(), reason(errno)),
                       kChooseAnother);
    }
  }
  if (!S_ISDIR(status.st_mode)) {
    throw CacheError("cannot use the folder of the tuning cache",
                     fmt::format("path={} (not a folder)", directory.string()), kChooseAnother);
  }
  require_own(directory, status);
  require_unwritable_by_others(directory, status);
}

void require_trusted_file(const fs::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) {
    throw CacheError("cannot read tuning cache",
                     fmt::format("path={} ({})", file.string(), reason(errno)),
                     "name a file that is there");
  }
  if (!S_ISREG(status.st_mode)) {
    throw CacheError("cannot read tuning cache",
                     fmt::format("path={} (not a regular file)", file.string()),
                     "name a file that is there");
  }
  require_own_files(file, status);
}

bool prepare_file(const fs::path& file) {
  const struct stat status = find_or_create(file);
  if (!S_ISREG(status.st_mode)) {
    throw CacheError("cannot open tuning cache",
                     fmt::format("path={} (not a regular file)", file.string()), kChooseAnother);
  }
  require_own_files(file, status);
  return is_allowed(file, R_OK | W_OK) && is_allowed(file.parent_path(), W_OK | X_OK);
}

bool is_network_file_system(const fs::path& directory) {
  // NFS, SMB, SMB2, CIFS, FUSE, 9P, Lustre, GPFS, AFS, Ceph, BeeGFS (linux/magic.h and the file
  // systems' own sources).
  constexpr std::array<std::uint32_t, 11> kTypes = {0x6969,     0x517b,     0xfe534d42, 0xff534d42,
                                                    0x65735546, 0x01021997, 0x0bd00bd0, 0x47504653,
                                                    0x5346414f, 0x00c36400, 0x19830326};
  struct statfs status {};
  if (::statfs(directory.c_str(), &status) != 0) return false;
  return std::find(kTypes.begin(), kTypes.end(), static_cast<std::uint32_t>(status.f_type)) !=
         kTypes.end();
}

std::optional<fs::path> move_aside(const fs::path& file, const FileIdentity& expected) {
  const Descriptor directory(
      ::open(file.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  lock_directory(directory);
  if (file_identity(file) != expected) return std::nullopt;
  const fs::path aside = free_damaged_name(file);
  // The log goes first: whoever creates the fresh file must not meet it, nor lose its own to us.
  // It is usually missing.
  ::rename((file.string() + "-wal").c_str(), (aside.string() + "-wal").c_str());
  ::unlink((file.string() + "-shm").c_str());
  if (::rename(file.c_str(), aside.c_str()) != 0) {
    throw CacheError("cannot move the damaged tuning cache aside",
                     fmt::format("path={} ({})", file.string(), reason(errno)),
                     fmt::format("remove it, or {}", kChooseAnother));
  }
  return aside;
}

std::string utc_now() {
  const std::tm t = utc_time();
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", t.tm_year + 1900, t.tm_mon + 1,
                     t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec);
}

}  // namespace attune
