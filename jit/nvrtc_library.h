// libnvrtc, found and opened at run time: our own declarations, no nvrtc.h.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "jit/compiler.h"

namespace attune {

using NvrtcResult = int;     // nvrtcResult; 0 is success
using NvrtcProgram = void*;  // nvrtcProgram

// The opened library; it is never unloaded.
struct NvrtcLibrary {
  std::string path;
  std::string version;     // "13.0"
  bool has_cache = false;  // of its own, since 12.9

  NvrtcResult (*get_version)(int* major, int* minor);
  const char* (*get_error_string)(NvrtcResult result);
  NvrtcResult (*create_program)(NvrtcProgram* program, const char* text, const char* name,
                                int num_headers, const char* const* headers,
                                const char* const* include_names);
  NvrtcResult (*destroy_program)(NvrtcProgram* program);
  NvrtcResult (*compile_program)(NvrtcProgram program, int num_options, const char* const* options);
  NvrtcResult (*get_cubin_size)(NvrtcProgram program, std::size_t* bytes);
  NvrtcResult (*get_cubin)(NvrtcProgram program, char* cubin);
  NvrtcResult (*get_log_size)(NvrtcProgram program, std::size_t* bytes);
  NvrtcResult (*get_log)(NvrtcProgram program, char* log);
};

// Throws DeviceUnavailable that lists every place looked at and what to install.
NvrtcLibrary open_nvrtc(const NvrtcSearch& search);

// The folders below `root` that are searched when the loader's path has no NVRTC, best first:
// CUDA toolkits, then the `nvidia` packages of the system's Pythons. `root` is "/" but for tests.
std::vector<std::filesystem::path> nvrtc_folders(const std::filesystem::path& root);

// The same for a folder that the caller names: itself, and what a CUDA toolkit, a site-packages or
// a virtual environment at that place would hold.
std::vector<std::filesystem::path> nvrtc_folders_in(const std::filesystem::path& folder);

}  // namespace attune
