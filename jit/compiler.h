// Source to Binary: by NVRTC for a GPU, by the system's C++ compiler for the host device.
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

// The system's C++ compiler: `cxx` alone when it is given (a program, by its path or found on PATH;
// the caller passes ATTUNE_CXX through it), else c++, g++ or clang++ on PATH.
struct HostCompilerSearch {
  std::string cxx = {};
  std::string keep_folder = {};     // sources are also written here and stay, for a debugger
  std::string scratch_folder = {};  // holds the folders of running compiles; empty: the system's
};

struct CompilerSearch {
  NvrtcSearch nvrtc = {};
  HostCompilerSearch host = {};
};

class Compiler {
 public:
  virtual ~Compiler() = default;

  virtual const std::string& version() const = 0;  // "13.0" of NVRTC, "g++ 12.2.0" on the host
  virtual const std::string& path() const = 0;     // of the opened library; the program's name

  // Compiles to a cubin or a shared object. Throws CompileError with the log when the compiler
  // refuses the source.
  virtual Binary compile(const Source& source, const std::string& arch) const = 0;

  // The key of a source: digest of text, headers it includes, options, arch and compiler version;
  // no path and no time.
  Digest key(const Source& source, const std::string& arch) const;
};

// The compiler of an architecture: "host" and its variants (jit/host/host_target.h) or what NVRTC
// knows. Throws DeviceUnavailable that lists every place looked at and what to install.
std::unique_ptr<Compiler> open_compiler(const CompilerSearch& search, const std::string& arch);

// The options of every compile for `arch`, joined by spaces; needs no compiler.
std::string compile_options(const std::string& arch);

// A compiler as reports name it: "NVRTC 13.0", "g++ 12.2.0".
std::string compiler_name(const std::string& arch, const std::string& version);

// What Compiler::key is made of.
Digest source_key(const Source& source, const std::string& arch, const std::string& options,
                  const std::string& compiler_version);

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
