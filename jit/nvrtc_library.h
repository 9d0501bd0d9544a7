// libnvrtc, found and opened at run time: our own declarations, no nvrtc.h.
#pragma once

#include <cstddef>
#include <string>

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

}  // namespace attune
