// Devices whose products come from the fake libcublasLt of tests/fake_cublaslt, which computes on the CPU:
// pointers have to be the host's.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "jit/cublaslt_gemm.h"
#include "jit/shared_library.h"
#include "tests/fake_cublaslt/fake_cublaslt.h"
#include "tests/support/forwarding_device.h"

namespace attune {

// The folder of the library; the target that uses it defines ATTUNE_FAKE_CUBLASLT and depends on it.
inline std::string fake_cublaslt_folder() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto bundled = program.parent_path().parent_path() / "data" / "fake_cublaslt";
  if (!error && std::filesystem::exists(bundled, error)) return bundled.string();
  return ATTUNE_FAKE_CUBLASLT;
}

inline FakeCublasLtState& fake_cublaslt_state() {
  const CublasLtLibrary library = open_cublaslt({fake_cublaslt_folder()});
  FakeCublasLtStateFunction* state = nullptr;
  find_symbol(open_shared_library(library.path), "fake_cublaslt_state", &state);
  return *state();
}

class FakeCublasLtDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  std::unique_ptr<Gemm> open_gemm(const GemmSearch&) override {
    return make_cublaslt_gemm(*this, open_cublaslt({fake_cublaslt_folder()}),
                              [](const std::function<void()>& call) { call(); });
  }
};

}  // namespace attune
