#include "jit/toolkit_library.h"

#include <algorithm>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

namespace attune {
namespace {

namespace fs = std::filesystem;
using Folders = std::vector<fs::path>;

// Entries of `folder` whose name starts with `prefix`, last name first: higher versions before
// lower ones. Empty when there is no such folder.
Folders entries(const fs::path& folder, std::string_view prefix) {
  Folders found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with(prefix)) found.push_back(it->path());
  }
  // By version: as text, cuda-9.2 would come before cuda-13.0.
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) {
    return strverscmp(a.c_str(), b.c_str()) > 0;
  });
  return found;
}

void add_packages(const fs::path& site_packages, std::string_view package, Folders* folders) {
  folders->push_back(site_packages / "nvidia" / "cu13" / "lib");
  folders->push_back(site_packages / "nvidia" / package / "lib");
}

void add_pythons(const fs::path& lib, std::string_view package, Folders* folders) {
  for (const fs::path& python : entries(lib, "python3")) {
    add_packages(python / "site-packages", package, folders);
    add_packages(python / "dist-packages", package, folders);
  }
}

void add_toolkit(const fs::path& toolkit, Folders* folders) {
  folders->push_back(toolkit / "lib64");
  folders->push_back(toolkit / "targets" / "x86_64-linux" / "lib");
  folders->push_back(toolkit / "targets" / "sbsa-linux" / "lib");
}

// Looks for one library and notes where.
class Search {
 public:
  explicit Search(const ToolkitLibrary& wanted) : wanted_(wanted) {}

  FoundLibrary explicitly(const std::string& path) {
    std::error_code error;
    const SharedLibrary library = fs::is_directory(path, error)
                                      ? in(toolkit_folders_in(path, wanted_.package))
                                      : open_file(path);
    return {library, looked_at_};
  }

  FoundLibrary anywhere(const std::vector<std::string>& extra_folders) {
    for (const char* name : wanted_.names) {
      SharedLibrary library = open_shared_library(name);
      if (library.handle != nullptr) return {library, looked_at_};
    }
    note(fmt::format("the loader's path ({})", fmt::join(wanted_.names, " ")));
    Folders folders = toolkit_folders("/", wanted_.package);
    for (const std::string& extra : extra_folders) {
      const Folders more = toolkit_folders_in(extra, wanted_.package);
      folders.insert(folders.end(), more.begin(), more.end());
    }
    return {in(folders), looked_at_};
  }

 private:
  void note(const std::string& place) {
    looked_at_ += fmt::format("{}{}", looked_at_.empty() ? "" : ", ", place);
  }

  SharedLibrary open_file(const fs::path& file) {
    if (!wanted_.opens_by_name.empty()) {
      for (const fs::path& other : entries(file.parent_path(), wanted_.opens_by_name)) {
        open_shared_library(other);  // a failure shows when it is needed
      }
    }
    SharedLibrary library = open_shared_library(file);
    if (library.handle == nullptr) note(library.problem);
    return library;
  }

  SharedLibrary in(const Folders& folders) {
    for (const fs::path& folder : folders) {
      for (const char* name : wanted_.names) {
        std::error_code error;
        if (!fs::exists(folder / name, error)) continue;
        SharedLibrary library = open_file(folder / name);
        if (library.handle != nullptr) return library;
      }
      note(folder.string());
    }
    return {};
  }

  const ToolkitLibrary& wanted_;
  std::string looked_at_;
};

}  // namespace

Folders toolkit_folders(const fs::path& root, std::string_view package) {
  Folders folders;
  add_toolkit(root / "usr/local/cuda", &folders);
  for (const fs::path& toolkit : entries(root / "usr/local", "cuda-")) {
    add_toolkit(toolkit, &folders);
  }
  add_toolkit(root / "opt/cuda", &folders);
  add_pythons(root / "usr/local/lib", package, &folders);
  add_pythons(root / "usr/lib", package, &folders);
  return folders;
}

Folders toolkit_folders_in(const fs::path& folder, std::string_view package) {
  Folders folders = {folder};
  add_toolkit(folder, &folders);
  folders.push_back(folder / "lib");
  add_packages(folder, package, &folders);
  add_pythons(folder / "lib", package, &folders);
  return folders;
}

FoundLibrary open_toolkit_library(const ToolkitLibrary& wanted, const std::string& path,
                                  const std::vector<std::string>& extra_folders) {
  Search search(wanted);
  return path.empty() ? search.anywhere(extra_folders) : search.explicitly(path);
}

}  // namespace attune
