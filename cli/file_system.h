// What a path lies on.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace attune {

// "ext4", "tmpfs (in memory: gone after a restart)", "nfs (network)" or the number of an unknown
// one; of the nearest folder above `path` that exists.
std::string file_system_of(const std::filesystem::path& path);

// Whether the file, or when it is missing the nearest folder above it, may be written.
bool may_write(const std::filesystem::path& path);

// Throws Error, before long work, where a file cannot be written. Creates one that is missing and
// leaves the content of one that is there.
void require_writable(const std::filesystem::path& path);

// Writes a file as a whole: until all of it is on disk the earlier one stays. Links are followed;
// devices and pipes are written as they are. Throws InvalidArgument for a folder, and Error.
void replace_file(const std::filesystem::path& path, std::string_view content);

}  // namespace attune
