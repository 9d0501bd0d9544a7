// Gemm by cuBLASLt.
#pragma once

#include <functional>
#include <memory>

#include "jit/cublaslt_library.h"
#include "jit/gemm.h"

namespace attune {

// Runs a call of the library with the device's context current.
using InContext = std::function<void(const std::function<void()>& call)>;

// Throws DeviceUnavailable when the library does not start on the device.
std::unique_ptr<Gemm> make_cublaslt_gemm(Device& device, const CublasLtLibrary& library,
                                         InContext in_context);

}  // namespace attune
