#include "cli/file_system.h"

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

// statfs(2), f_type.
constexpr std::array<std::pair<std::uint32_t, std::string_view>, 15> kFileSystems = {{
    {0xef53, "ext2/ext3/ext4"},
    {0x58465342, "xfs"},
    {0x9123683e, "btrfs"},
    {0x2fc12fc1, "zfs"},
    {0xf2f52010, "f2fs"},
    {0x794c7630, "overlay (a container's own layer: gone with it)"},
    {0x01021994, "tmpfs (in memory: gone after a restart)"},
    {0x858458f6, "ramfs (in memory: gone after a restart)"},
    {0x6969, "nfs (network)"},
    {0xfe534d42, "smb2 (network)"},
    {0xff534d42, "cifs (network)"},
    {0x01021997, "9p (network)"},
    {0x0bd00bd0, "lustre (network)"},
    {0x47504653, "gpfs (network)"},
    {0x65735546, "fuse"},
}};

// `path` itself or the nearest one above it that exists.
fs::path nearest_existing(fs::path path) {
  std::error_code error;
  path = fs::absolute(path, error);
  while (!fs::exists(path, error) && path.has_relative_path()) path = path.parent_path();
  return path;
}

[[noreturn]] void fail_to_write(const fs::path& path) {
  throw Error("cannot write the file",
              fmt::format("path={} error={}", path.string(), std::strerror(errno)),
              "name a file in a folder that exists and may be written");
}

// Errors name `named`.
void write_file(const fs::path& path, std::string_view content, const fs::path& named) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) fail_to_write(named);
  while (!content.empty()) {
    const ssize_t written = write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) break;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  const int write_error = content.empty() ? 0 : errno;
  const bool is_closed = close(file) == 0;
  if (write_error != 0) errno = write_error;
  if (write_error != 0 || !is_closed) fail_to_write(named);
}

// Gone at the end, unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(fs::path path) : path_(std::move(path)) {}
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

std::string file_system_of(const fs::path& path) {
  struct statfs info {};
  if (statfs(nearest_existing(path).c_str(), &info) != 0) return "unknown";
  const auto type = static_cast<std::uint32_t>(info.f_type);
  for (const auto& [known, name] : kFileSystems) {
    if (known == type) return std::string(name);
  }
  return fmt::format("unknown (statfs type 0x{:x})", type);
}

void replace_file(const fs::path& path, std::string_view content) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) {
    throw InvalidArgument("cannot write a file over a folder",
                          fmt::format("path={}", path.string()), "name a file in it");
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) return write_file(path, content, path);
  const fs::path target = fs::exists(status) ? fs::canonical(path) : path;
  const TemporaryFile temporary(target.string() + fmt::format(".partial-{}", getpid()));
  write_file(temporary.path(), content, path);
  if (::rename(temporary.path().c_str(), target.c_str()) != 0) fail_to_write(path);
}

void require_writable(const fs::path& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) fail_to_write(path);
  close(file);
}

bool may_write(const fs::path& path) { return access(nearest_existing(path).c_str(), W_OK) == 0; }

}  // namespace attune
