// NVRTC: source to Binary. libnvrtc is opened on first use and never linked.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "jit/binary.h"
#include "jit/source.h"

namespace attune {

// Where libnvrtc is looked for: `nvrtc_path` alone when it is given (a library or a folder; the
// caller passes ATTUNE_NVRTC through it), else in this order the loader's path, CUDA toolkits, the
// `nvidia` Python packages, `extra_folders`. A folder may hold the library or be a site-packages or
// a prefix that holds it deeper.
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

  // The options of every compile for `arch`, joined by spaces; needs no NVRTC.
  static std::string options(const std::string& arch);

  // The key of a source: digest of text, headers it includes, options, arch and NVRTC version; no
  // path and no time.
  Digest key(const Source& source, const std::string& arch) const;

  // Compiles to a cubin. Throws CompileError with the log when NVRTC refuses the source.
  Binary compile(const Source& source, const std::string& arch) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What Compiler::key is made of.
Digest source_key(const Source& source, const std::string& arch, const std::string& options,
                  const std::string& nvrtc_version);

// Registers, spills, stack, shared memory and notes from what `--ptxas-options=-v` prints.
struct PtxasReport {
  std::vector<KernelResources> kernels;
  std::vector<std::string> notes;
};
PtxasReport parse_ptxas_log(const std::string& log);

// Whether a ptxas note must fail a build: an ignored setmaxnreg (C7504, C7505, C7508) or serialized
// wgmma (C7509-C7512, C7517, C7519, C7520) gives right results at a fraction of the speed.
bool is_fatal_note(const std::string& note);

}  // namespace attune
