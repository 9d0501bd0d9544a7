#include "jit/nvrtc_compiler.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/nvrtc_library.h"

namespace attune {
namespace {

// Owns an nvrtcProgram.
class Program {
 public:
  Program(const NvrtcLibrary& nvrtc, const Source& source, const std::string& name)
      : nvrtc_(nvrtc) {
    std::vector<std::string> copies;  // NVRTC wants terminated strings
    copies.reserve(2 * source.headers.size());
    std::vector<const char*> texts;
    std::vector<const char*> names;
    for (const EmbeddedFile& header : source.headers) {
      texts.push_back(copies.emplace_back(header.text).c_str());
      names.push_back(copies.emplace_back(header.name).c_str());
    }
    const NvrtcResult result =
        nvrtc_.create_program(&program_, source.text.c_str(), name.c_str(),
                              static_cast<int>(texts.size()), texts.data(), names.data());
    if (result != 0) {
      throw CompileError("NVRTC cannot take the source",
                         fmt::format("status={}", nvrtc_.get_error_string(result)), {},
                         source.text);
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() { nvrtc_.destroy_program(&program_); }

  NvrtcResult compile(const std::vector<std::string>& options) {
    std::vector<const char*> pointers;
    for (const std::string& option : options) pointers.push_back(option.c_str());
    return nvrtc_.compile_program(program_, static_cast<int>(pointers.size()), pointers.data());
  }

  std::string log() const {
    std::size_t bytes = 0;
    if (nvrtc_.get_log_size(program_, &bytes) != 0 || bytes <= 1) return {};
    std::string log(bytes, '\0');
    if (nvrtc_.get_log(program_, log.data()) != 0) return {};
    log.resize(bytes - 1);  // without the terminator
    return log;
  }

  // Empty when NVRTC has none.
  std::vector<std::byte> cubin() const {
    std::size_t bytes = 0;
    if (nvrtc_.get_cubin_size(program_, &bytes) != 0) return {};
    std::vector<std::byte> cubin(bytes);
    if (nvrtc_.get_cubin(program_, reinterpret_cast<char*>(cubin.data())) != 0) return {};
    return cubin;
  }

 private:
  const NvrtcLibrary& nvrtc_;
  NvrtcProgram program_ = nullptr;
};

class NvrtcCompiler final : public Compiler {
 public:
  explicit NvrtcCompiler(NvrtcLibrary nvrtc) : nvrtc_(std::move(nvrtc)) {}

  const std::string& version() const override { return nvrtc_.version; }
  const std::string& path() const override { return nvrtc_.path; }
  Binary compile(const Source& source, const std::string& arch) const override;

 private:
  NvrtcLibrary nvrtc_;
};

Binary NvrtcCompiler::compile(const Source& source, const std::string& arch) const {
  const auto begin = std::chrono::steady_clock::now();
  const std::string name = source.split_symbol.empty() ? "probe" : source.split_symbol;
  Program program(nvrtc_, source, fmt::format("{}.cu", name));
  std::vector<std::string> all_options = nvrtc_options(arch);
  // A hit in NVRTC's own cache, which works where a driver is, comes without the log of ptxas:
  // spills would go unseen. Not part of the key, since the output does not depend on it; older
  // versions have neither cache nor option.
  if (nvrtc_.has_cache) all_options.emplace_back("--no-cache");
  const NvrtcResult result = program.compile(all_options);
  std::string log = program.log();
  std::vector<std::byte> cubin;
  if (result == 0) cubin = program.cubin();
  if (cubin.empty()) {
    throw CompileError("cannot compile the kernel",
                       fmt::format("source={} arch={} nvrtc={} status={}", name, arch, version(),
                                   nvrtc_.get_error_string(result)),
                       std::move(log), source.text);
  }
  PtxasReport report = parse_ptxas_log(log);
  // Spills and stack frames would go unseen.
  if (report.kernels.empty()) {
    throw CompileError("the compiler reported no resources", fmt::format("arch={}", arch),
                       std::move(log), source.text);
  }
  Binary binary;
  binary.key = key(source, arch);
  binary.content = digest_of(cubin);
  binary.arch = arch;
  binary.compiler_version = version();
  binary.options = compile_options(arch);
  binary.cubin = std::move(cubin);
  binary.kernels = std::move(report.kernels);
  binary.notes = std::move(report.notes);
  binary.log = std::move(log);
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - begin;
  binary.compile_ms = elapsed.count();
  return binary;
}

}  // namespace

std::unique_ptr<Compiler> open_nvrtc_compiler(const NvrtcSearch& search) {
  return std::make_unique<NvrtcCompiler>(open_nvrtc(search));
}

std::vector<std::string> nvrtc_options(const std::string& arch) {
  return {
      fmt::format("--gpu-architecture={}", arch),
      "-std=c++20",          // structural template arguments
      "-default-device",     // headers shared with the host have no __device__
      "-lineinfo",           // profiles show source lines; the code is the same
      "--ptxas-options=-v",  // resources in the log
  };
}

}  // namespace attune
