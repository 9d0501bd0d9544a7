// The compiler of GPU kernels: NVRTC, opened at run time and never linked.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "jit/compiler.h"

namespace attune {

// Throws DeviceUnavailable that lists every place looked at and what to install.
std::unique_ptr<Compiler> open_nvrtc_compiler(const NvrtcSearch& search);

// The options of every compile for a GPU architecture.
std::vector<std::string> nvrtc_options(const std::string& arch);

}  // namespace attune
