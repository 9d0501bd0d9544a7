// A temporary folder that only this user may read, removed with everything in it.
#pragma once

#include <filesystem>
#include <string_view>

namespace attune {

class PrivateFolder {
 public:
  // In `parent`; the system's place for temporary files when it is empty. Throws Error.
  explicit PrivateFolder(const std::filesystem::path& parent = {});
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  ~PrivateFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Writes a file and the folders that it needs. Throws Error.
void write_file(const std::filesystem::path& file, std::string_view text);

}  // namespace attune
