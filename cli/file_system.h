// What a path lies on.
#pragma once

#include <filesystem>
#include <string>

namespace attune {

// "ext4", "tmpfs (in memory: gone after a restart)", "nfs (network)" or the number of an unknown
// one; of the nearest folder above `path` that exists.
std::string file_system_of(const std::filesystem::path& path);

// Whether the file, or when it is missing the nearest folder above it, may be written.
bool may_write(const std::filesystem::path& path);

}  // namespace attune
