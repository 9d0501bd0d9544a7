#include "jit/nvrtc_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "common/error.h"

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
  std::sort(found.rbegin(), found.rend());
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

std::string path_of(void* library, const std::string& opened_as) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name[0] != '\0') {
    return map->l_name;
  }
  return opened_as;
}

void add_place(const std::string& place, std::string* looked_at) {
  *looked_at += fmt::format("{}{}", looked_at->empty() ? "" : ", ", place);
}

struct Opened {
  void* library = nullptr;
  std::string name;
};

// Opens NVRTC of a folder. NVRTC asks the loader for its builtins by bare name and has no run path:
// opened before it, they are found wherever they lie.
Opened open_file(const fs::path& file, std::string* looked_at) {
  for (const fs::path& builtins : entries(file.parent_path(), "libnvrtc-builtins.so")) {
    dlopen(builtins.c_str(), RTLD_NOW | RTLD_LOCAL);  // a failure shows when NVRTC compiles
  }
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = dlerror();
    add_place(fmt::format("{} ({})", file.string(), error == nullptr ? "unknown" : error),
              looked_at);
  }
  return {library, file.string()};
}

Opened open_in(const fs::path& folder, std::string* looked_at) {
  for (const char* name : kNames) {
    std::error_code error;
    if (!fs::exists(folder / name, error)) continue;
    if (Opened opened = open_file(folder / name, looked_at); opened.library != nullptr) {
      return opened;
    }
  }
  add_place(folder.string(), looked_at);
  return {};
}

Opened open_explicit(const std::string& path, std::string* looked_at) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return open_file(path, looked_at);
  for (const fs::path& folder : nvrtc_folders_in(path)) {
    if (Opened opened = open_in(folder, looked_at); opened.library != nullptr) return opened;
  }
  return {};
}

Opened open_anywhere(const NvrtcSearch& search, std::string* looked_at) {
  for (const char* name : kNames) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return {library, name};
  }
  add_place(fmt::format("the loader's path ({} {} {})", kNames[0], kNames[1], kNames[2]),
            looked_at);
  std::vector<fs::path> folders = nvrtc_folders("/");
  for (const std::string& extra : search.extra_folders) {
    const auto more = nvrtc_folders_in(extra);
    folders.insert(folders.end(), more.begin(), more.end());
  }
  for (const fs::path& folder : folders) {
    if (Opened opened = open_in(folder, looked_at); opened.library != nullptr) return opened;
  }
  return {};
}

template <typename Function>
void bind(const Opened& opened, const char* symbol, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(opened.library, symbol));
  if (*function != nullptr) return;
  throw DeviceUnavailable("the NVRTC library is not usable",
                          fmt::format("library={} missing={}", opened.name, symbol), kInstallNvrtc);
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
  const Opened opened = is_explicit ? open_explicit(search.nvrtc_path, &looked_at)
                                    : open_anywhere(search, &looked_at);
  if (opened.library == nullptr) {
    throw DeviceUnavailable(
        is_explicit ? "no NVRTC library at the given place" : "no NVRTC library found",
        fmt::format("looked in {}", looked_at), kInstallNvrtc);
  }
  NvrtcLibrary nvrtc{};
  nvrtc.path = path_of(opened.library, opened.name);
  bind(opened, "nvrtcVersion", &nvrtc.get_version);
  bind(opened, "nvrtcGetErrorString", &nvrtc.get_error_string);
  bind(opened, "nvrtcCreateProgram", &nvrtc.create_program);
  bind(opened, "nvrtcDestroyProgram", &nvrtc.destroy_program);
  bind(opened, "nvrtcCompileProgram", &nvrtc.compile_program);
  bind(opened, "nvrtcGetCUBINSize", &nvrtc.get_cubin_size);
  bind(opened, "nvrtcGetCUBIN", &nvrtc.get_cubin);
  bind(opened, "nvrtcGetProgramLogSize", &nvrtc.get_log_size);
  bind(opened, "nvrtcGetProgramLog", &nvrtc.get_log);
  int major = 0;
  int minor = 0;
  if (const NvrtcResult result = nvrtc.get_version(&major, &minor)) {
    throw DeviceUnavailable("the NVRTC library is not usable",
                            fmt::format("library={} status={}", nvrtc.path, result), kInstallNvrtc);
  }
  nvrtc.version = fmt::format("{}.{}", major, minor);
  return nvrtc;
}

}  // namespace attune
