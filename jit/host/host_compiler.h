// The compiler of the host device's kernels: the system's C++ compiler, run as a program.
#pragma once

#include <memory>

#include "jit/compiler.h"

namespace attune {

// Throws DeviceUnavailable that lists every program tried and what to install.
std::unique_ptr<Compiler> open_host_compiler(const HostCompilerSearch& search);

}  // namespace attune
