#include "jit/nvrtc_library.h"

#include <string_view>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/toolkit_library.h"

namespace attune {
namespace {

constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
constexpr ToolkitLibrary kNvrtc = {
    .names = kNames, .package = "cuda_nvrtc", .opens_by_name = "libnvrtc-builtins.so"};
constexpr std::string_view kInstallNvrtc =
    "install it with `pip install nvidia-cuda-nvrtc` or a CUDA toolkit (12.0 or later), or name "
    "its "
    "folder in ATTUNE_NVRTC";

template <typename Function>
void bind(const SharedLibrary& library, const char* symbol, Function** function) {
  find_symbol(library, symbol, function);
  if (*function != nullptr) return;
  throw DeviceUnavailable("the NVRTC library is not usable",
                          fmt::format("library={} missing={}", library.path, symbol),
                          kInstallNvrtc);
}

}  // namespace

NvrtcLibrary open_nvrtc(const NvrtcSearch& search) {
  const FoundLibrary found = open_toolkit_library(kNvrtc, search.nvrtc_path, search.extra_folders);
  const SharedLibrary& library = found.library;
  if (library.handle == nullptr) {
    throw DeviceUnavailable(search.nvrtc_path.empty() ? "no NVRTC library found"
                                                      : "no NVRTC library at the given place",
                            fmt::format("looked in {}", found.looked_at), kInstallNvrtc);
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
