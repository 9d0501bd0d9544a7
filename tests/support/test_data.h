// Where the files of tests/data are: in the source tree, or beside the programs of a bundle.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace attune {

// The target that uses it defines ATTUNE_TEST_DATA, the folder in the source tree.
inline std::filesystem::path test_data(const std::string& name) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto bundled = program.parent_path().parent_path() / "data" / name;
  if (!error && std::filesystem::exists(bundled, error)) return bundled;
  return std::filesystem::path(ATTUNE_TEST_DATA) / name;
}

}  // namespace attune
