#include "cli/file_system.h"

#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

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

bool may_write(const fs::path& path) { return access(nearest_existing(path).c_str(), W_OK) == 0; }

}  // namespace attune
