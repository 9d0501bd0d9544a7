// The folder and the file of the tuning cache: creation, ownership, kind of file system, moving
// damage aside. Knows nothing of SQLite.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>

namespace attune {

// Which file a path leads to; two paths to one file have equal identities.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};
// Follows links; empty when there is no such file.
std::optional<FileIdentity> file_identity(const std::filesystem::path& path);

// Creates the folder and its missing parents with mode 0700. Throws CacheError when that fails,
// when it is no folder, or when another user (root is trusted) owns it or may put files there: who
// can could plant device code.
void prepare_directory(const std::filesystem::path& directory);

// Creates the file with mode 0600 when it is missing. Returns whether file and folder may be
// written (SQLite needs both). Throws CacheError when it is missing and cannot be created, is no
// regular file, or when the file, a link to it or its log belongs to another user, or anyone may
// write it.
bool prepare_file(const std::filesystem::path& file);
// The same of a file that is only read, whatever its folder is. Throws CacheError.
void require_trusted_file(const std::filesystem::path& file);

// Whether shared memory maps between hosts cannot be trusted there: network and FUSE file systems.
bool is_network_file_system(const std::filesystem::path& directory);

// Renames the file and its -wal to <file>.damaged-<UTC time> and returns the new name, unless the
// file is not `expected` any more: then another process has replaced it, and the result is empty.
// Throws CacheError when it cannot be renamed.
std::optional<std::filesystem::path> move_aside(const std::filesystem::path& file,
                                                const FileIdentity& expected);

// Now, UTC: "2026-01-31T23:59:59Z".
std::string utc_now();

}  // namespace attune
