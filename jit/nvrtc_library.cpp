#include "jit/nvrtc_library.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/shared_library.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
constexpr std::string_view kInstallNvrtc =
    "install it with `pip install nvidia-cuda-nvrtc` or a CUDA toolkit (12.0 or later), or name "
    "its "
    "folder in ATTUNE_NVRTC";

// Entries of `folder` whose name starts with `prefix`, last name first: higher versions before
// lower ones. Empty when there is no such folder.
std::vector<fs::path> entries(const fs::path& folder, std::string_view prefix) {
  std::vector<fs::path> found;
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

void add_packages(const fs::path& site_packages, std::vector<fs::path>* folders) {
  folders->push_back(site_packages / "nvidia" / "cu13" / "lib");
  folders->push_back(site_packages / "nvidia" / "cuda_nvrtc" / "lib");
}

void add_pythons(const fs::path& lib, std::vector<fs::path>* folders) {
  for (const fs::path& python : entries(lib, "python3")) {
    add_packages(python / "site-packages", folders);
    add_packages(python / "dist-packages", folders);
  }
}

void add_toolkit(const fs::path& toolkit, std::vector<fs::path>* folders) {
  folders->push_back(toolkit / "lib64");
  folders->push_back(toolkit / "targets" / "x86_64-linux" / "lib");
  folders->push_back(toolkit / "targets" / "sbsa-linux" / "lib");
}

void add_place(const std::string& place, std::string* looked_at) {
  *looked_at += fmt::format("{}{}", looked_at->empty() ? "" : ", ", place);
}

// Opens NVRTC of a folder. NVRTC asks the loader for its builtins by bare name and has no run path:
// opened before it, they are found wherever they lie.
SharedLibrary open_file(const fs::path& file, std::string* looked_at) {
  for (const fs::path& builtins : entries(file.parent_path(), "libnvrtc-builtins.so")) {
    open_shared_library(builtins);  // a failure shows when NVRTC compiles
  }
  SharedLibrary library = open_shared_library(file);
  if (library.handle == nullptr) add_place(library.problem, looked_at);
  return library;
}

SharedLibrary open_in(const std::vector<fs::path>& folders, std::string* looked_at) {
  for (const fs::path& folder : folders) {
    for (const char* name : kNames) {
      std::error_code error;
      if (!fs::exists(folder / name, error)) continue;
      SharedLibrary library = open_file(folder / name, looked_at);
      if (library.handle != nullptr) return library;
    }
    add_place(folder.string(), looked_at);
  }
  return {};
}

SharedLibrary open_explicit(const std::string& path, std::string* looked_at) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return open_file(path, looked_at);
  return open_in(nvrtc_folders_in(path), looked_at);
}

SharedLibrary open_anywhere(const NvrtcSearch& search, std::string* looked_at) {
  for (const char* name : kNames) {
    SharedLibrary library = open_shared_library(name);
    if (library.handle != nullptr) return library;
  }
  add_place(fmt::format("the loader's path ({} {} {})", kNames[0], kNames[1], kNames[2]),
            looked_at);
  std::vector<fs::path> folders = nvrtc_folders("/");
  for (const std::string& extra : search.extra_folders) {
    const auto more = nvrtc_folders_in(extra);
    folders.insert(folders.end(), more.begin(), more.end());
  }
  return open_in(folders, looked_at);
}

template <typename Function>
void bind(const SharedLibrary& library, const char* symbol, Function** function) {
  find_symbol(library, symbol, function);
  if (*function != nullptr) return;
  throw DeviceUnavailable("the NVRTC library is not usable",
                          fmt::format("library={} missing={}", library.path, symbol),
                          kInstallNvrtc);
}

}  // namespace

std::vector<fs::path> nvrtc_folders(const fs::path& root) {
  std::vector<fs::path> folders;
  add_toolkit(root / "usr/local/cuda", &folders);
  for (const fs::path& toolkit : entries(root / "usr/local", "cuda-")) {
    add_toolkit(toolkit, &folders);
  }
  add_toolkit(root / "opt/cuda", &folders);
  add_pythons(root / "usr/local/lib", &folders);
  add_pythons(root / "usr/lib", &folders);
  return folders;
}

std::vector<fs::path> nvrtc_folders_in(const fs::path& folder) {
  std::vector<fs::path> folders = {folder};
  add_toolkit(folder, &folders);
  folders.push_back(folder / "lib");
  add_packages(folder, &folders);
  add_pythons(folder / "lib", &folders);
  return folders;
}

NvrtcLibrary open_nvrtc(const NvrtcSearch& search) {
  std::string looked_at;
  const bool is_explicit = !search.nvrtc_path.empty();
  const SharedLibrary library = is_explicit ? open_explicit(search.nvrtc_path, &looked_at)
                                            : open_anywhere(search, &looked_at);
  if (library.handle == nullptr) {
    throw DeviceUnavailable(
        is_explicit ? "no NVRTC library at the given place" : "no NVRTC library found",
        fmt::format("looked in {}", looked_at), kInstallNvrtc);
  }
  NvrtcLibrary nvrtc{};
  nvrtc.path = library.path;
  bind(library, "nvrtcVersion", &nvrtc.get_version);
  bind(library, "nvrtcGetErrorString", &nvrtc.get_error_string);
  bind(library, "nvrtcCreateProgram", &nvrtc.create_program);
  bind(library, "nvrtcDestroyProgram", &nvrtc.destroy_program);
  bind(library, "nvrtcCompileProgram", &nvrtc.compile_program);
  bind(library, "nvrtcGetCUBINSize", &nvrtc.get_cubin_size);
  bind(library, "nvrtcGetCUBIN", &nvrtc.get_cubin);
  bind(library, "nvrtcGetProgramLogSize", &nvrtc.get_log_size);
  bind(library, "nvrtcGetProgramLog", &nvrtc.get_log);
  int major = 0;
  int minor = 0;
  if (const NvrtcResult result = nvrtc.get_version(&major, &minor)) {
    throw DeviceUnavailable("the NVRTC library is not usable",
                            fmt::format("library={} status={}", nvrtc.path, result), kInstallNvrtc);
  }
  nvrtc.version = fmt::format("{}.{}", major, minor);
  nvrtc.has_cache = major > 12 || (major == 12 && minor >= 9);
  return nvrtc;
}

}  // namespace attune
