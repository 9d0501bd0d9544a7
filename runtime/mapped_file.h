// A file mapped into memory, read-only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace attune {

// Move-only owner of the mapping. Reading pages of a file that was made shorter meanwhile ends the
// process (SIGBUS): whoever replaces a file that is in use writes another one and renames it.
class MappedFile {
 public:
  // Throws InvalidArgument when `path` is no regular file that can be read. An empty file has no
  // bytes.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace attune
