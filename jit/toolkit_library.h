// Libraries of the CUDA toolkit, found and opened at run time.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/shared_library.h"

namespace attune {

struct ToolkitLibrary {
  std::span<const char* const> names;  // best first: "libnvrtc.so.13"
  std::string_view package;            // its folder among the `nvidia` Python packages of CUDA 12
  // Prefix of libraries of the same folder that it asks the loader for by bare name without having a
  // run path: opened before it, they are found wherever they lie. Empty: none.
  std::string_view opens_by_name = {};
};

struct FoundLibrary {
  SharedLibrary library;  // its handle is nullptr where there is none
  std::string looked_at;  // every place and what was wrong there
};

// `path` alone when it is given (a library or a folder), else in this order the loader's path, CUDA
// toolkits, the `nvidia` Python packages, `extra_folders`. A folder may hold the library or be a
// site-packages or a prefix that holds it deeper.
FoundLibrary open_toolkit_library(const ToolkitLibrary& wanted, const std::string& path,
                                  const std::vector<std::string>& extra_folders = {});

// The folders below `root` that are searched when the loader's path has no such library, best first:
// CUDA toolkits, then the `nvidia` packages of the system's Pythons. `root` is "/" but for tests.
std::vector<std::filesystem::path> toolkit_folders(const std::filesystem::path& root,
                                                   std::string_view package);

// The same for a folder that the caller names: itself, and what a CUDA toolkit, a site-packages or
// a virtual environment at that place would hold.
std::vector<std::filesystem::path> toolkit_folders_in(const std::filesystem::path& folder,
                                                      std::string_view package);

}  // namespace attune
