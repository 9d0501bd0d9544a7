// NVRTC: source to Binary. libnvrtc is opened on first use and never linked.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "jit/binary.h"
#include "jit/source.h"

namespace attune {

// Where libnvrtc is looked for, in this order: `nvrtc_path` (a library or its folder; the caller
// passes ATTUNE_NVRTC through it), the loader's path, CUDA toolkits, the `nvidia` Python packages,
// `extra_folders`.
struct NvrtcSearch {
  std::string nvrtc_path;
  std::vector<std::string> extra_folders;
};

class Compiler {
 public:
  // Throws DeviceUnavailable that lists every place looked at and what to install.
  explicit Compiler(const NvrtcSearch& search = {});
  ~Compiler();
  Compiler(Compiler&&) noexcept;
  Compiler& operator=(Compiler&&) noexcept;

  const std::string& version() const;       // "13.0"
  const std::string& library_path() const;  // of the opened library

  // The key of a source: digest of text, headers it includes, options, arch and NVRTC version; no
  // path and no time.
  Digest key(const Source& source, const std::string& arch) const;

  // Compiles to a cubin. Throws CompileError with the log when NVRTC refuses the source.
  Binary compile(const Source& source, const std::string& arch) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Registers, spills, stack, shared memory and notes from what `--ptxas-options=-v` prints.
struct PtxasReport {
  std::vector<KernelResources> kernels;
  std::vector<std::string> notes;
};
PtxasReport parse_ptxas_log(const std::string& log);

// The value of `--ptxas` notes that must fail a build (kernels.md 10.4): C7504..C7520 as listed
// there.
bool is_fatal_note(const std::string& note);

}  // namespace attune
