// Kernels on the host device, for tests: compiled by the system's C++ compiler, which CI has.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/error.h"
#include "jit/compiler.h"
#include "jit/host_device.h"
#include "jit/source.h"

namespace attune {

// A host device and its compiler.
struct HostBench {
  explicit HostBench(const HostDeviceOptions& options = {})
      : device(open_host_device(options)), compiler(open_compiler({}, device->info().arch)) {}

  Binary compile(const Source& source) const {
    return compiler->compile(source, device->info().arch);
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Compiler> compiler;
};

// What the tests run in: with checks, but in a process with sanitizers those are the ones to use.
inline HostTarget checked_target() {
#if defined(__SANITIZE_ADDRESS__)
  return {.checks = HostChecks::kSanitizers};
#else
  return {.checks = HostChecks::kAccesses};
#endif
}

// A unit of hand-written kernels: `text` with the templates' PTX functions in front.
inline Source unit_of(std::string_view text, std::vector<std::string> symbols) {
  Source source;
  source.text = "#include \"templates/device/ptx_hopper.cuh\"\nnamespace attune {\n";
  source.text += text;
  source.text += "\n}  // namespace attune\n";
  for (const std::string& symbol : symbols) source.text += "using attune::" + symbol + ";\n";
  source.split_symbol = symbols.front();
  source.symbols = std::move(symbols);
  source.headers.assign(embedded_files().begin(), embedded_files().end());
  return source;
}

// The message of the CudaError that `work` throws; empty, with a failure, when it throws none.
template <typename Work>
std::string fault_of(const Work& work) {
  try {
    work();
  } catch (const CudaError& error) {
    return error.what();
  }
  ADD_FAILURE() << "the kernel ended without a fault";
  return {};
}

}  // namespace attune
