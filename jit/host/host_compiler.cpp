#include "jit/host/host_compiler.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "common/text.h"
#include "jit/host/host_source.h"
#include "jit/host/host_target.h"
#include "jit/host/private_folder.h"
#include "jit/run_program.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

struct FoundProgram {
  std::string path;
  std::string version;  // "g++ 12.2.0"
  bool is_gcc = false;
};

// The value of a predefined macro in the output of `-dM -E`.
std::string_view macro(std::string_view output, std::string_view name) {
  const std::string line = fmt::format("#define {} ", name);
  const std::size_t at = output.find(line);
  if (at == std::string_view::npos) return {};
  const std::size_t begin = at + line.size();
  return output.substr(begin, output.find('\n', begin) - begin);
}

// Asks a program for its predefined macros, which read alike whatever name it is called by, with
// the options of every compile: one that is too old for them is passed over now. Adds a program
// that does not serve to `tried`.
std::optional<FoundProgram> ask(const std::string& program, std::string* tried) {
  // A relative path is meant from here, not from where the compiler runs.
  const bool is_path = program.find('/') != std::string::npos;
  FoundProgram found;
  found.path = is_path ? fs::absolute(program).string() : program;
  std::vector<std::string> command = host_options({});
  command.insert(command.begin(), found.path);
  command.insert(command.end(), {"-dM", "-E", "-x", "c++", "/dev/null"});
  const ProgramRun run = run_program(command, {"LC_ALL=C"});
  const std::string_view clang = macro(run.output, "__clang_major__");
  const std::string_view gcc = macro(run.output, "__GNUC__");
  if (run.problem.empty() && run.end.is_success && !gcc.empty()) {
    found.is_gcc = clang.empty();
    found.version =
        found.is_gcc ? fmt::format("g++ {}.{}.{}", gcc, macro(run.output, "__GNUC_MINOR__"),
                                   macro(run.output, "__GNUC_PATCHLEVEL__"))
                     : fmt::format("clang++ {}.{}.{}", clang, macro(run.output, "__clang_minor__"),
                                   macro(run.output, "__clang_patchlevel__"));
    return found;
  }
  std::string reason = run.problem;
  if (reason.empty()) reason = run.output.substr(0, run.output.find('\n'));
  if (reason.empty() || run.end.is_success) reason = "not a C++ compiler";
  *tried += fmt::format("{}{} ({})", tried->empty() ? "" : ", ", found.path, reason);
  return std::nullopt;
}

FoundProgram find_program(const HostCompilerSearch& search) {
  std::string tried;
  const bool is_explicit = !search.cxx.empty();
  const std::vector<std::string> programs = is_explicit
                                                ? std::vector<std::string>{search.cxx}
                                                : std::vector<std::string>{"c++", "g++", "clang++"};
  for (const std::string& program : programs) {
    if (auto found = ask(program, &tried)) return *std::move(found);
  }
  throw DeviceUnavailable(is_explicit ? "no C++ compiler at the given place"
                                      : "no C++ compiler found for the host device",
                          fmt::format("tried {}", tried),
                          "install one with `apt-get install g++` (11 or later, or clang 12 or "
                          "later), or name it in ATTUNE_CXX");
}

// Signs in a compiler's messages that the machine failed, not the source: another try may do.
bool is_failure_of_machine(const ProgramRun& run) {
  constexpr std::string_view kSigns[] = {"Killed signal terminated program",
                                         "No space left on device",
                                         "Cannot allocate memory",
                                         "out of memory allocating",
                                         "cannot execute",
                                         "ld: cannot find",
                                         "cannot find 'ld'"};
  if (!run.problem.empty() || run.end.text.starts_with("signal 9 ")) return true;
  return std::any_of(std::begin(kSigns), std::end(kSigns), [&](std::string_view sign) {
    return run.output.find(sign) != std::string::npos;
  });
}

void write_source(const Source& unit, const std::string& file, const fs::path& folder) {
  write_file(folder / file, unit.text);
  for (const EmbeddedFile& header : unit.headers) write_file(folder / header.name, header.text);
}

// Empty when there is none.
std::vector<std::byte> read_bytes(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

// Without the folder's path, so that messages name the templates' files.
std::string without_folder(std::string text, const fs::path& folder) {
  const std::string prefix = folder.string() + '/';
  for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at)) {
    text.erase(at, prefix.size());
  }
  return text;
}

class HostCompiler final : public Compiler {
 public:
  explicit HostCompiler(HostCompilerSearch search)
      : search_(std::move(search)), program_(find_program(search_)) {}

  const std::string& version() const override { return program_.version; }
  const std::string& path() const override { return program_.path; }
  Binary compile(const Source& source, const std::string& arch) const override;

 private:
  std::vector<std::string> command(const HostTarget& target, const fs::path& folder,
                                   const std::string& file, const std::string& object) const;

  HostCompilerSearch search_;
  FoundProgram program_;
};

// The options of the key, then paths and what makes one compiler do as the other does.
std::vector<std::string> HostCompiler::command(const HostTarget& target, const fs::path& folder,
                                               const std::string& file,
                                               const std::string& object) const {
  std::vector<std::string> all = {program_.path};
  const std::vector<std::string> options = host_options(target);
  all.insert(all.end(), options.begin(), options.end());
  if (program_.is_gcc) {
    all.emplace_back("-fno-gnu-unique");  // such symbols pin a module
  } else if (target.checks == HostChecks::kAccesses) {
    all.emplace_back("-D__SANITIZE_THREAD__=1");  // GCC defines it by itself
  }
  all.push_back(fmt::format("-ffile-prefix-map={}/=", folder.string()));
  all.push_back(fmt::format("-I{}", folder.string()));
  all.push_back((folder / file).string());
  all.emplace_back("-o");
  all.push_back((folder / object).string());
  all.insert(all.end(), {"-lm", "-lgcc", "-lc"});
  return all;
}

Binary HostCompiler::compile(const Source& source, const std::string& arch) const {
  const auto begin = std::chrono::steady_clock::now();
  const HostTarget target = HostTarget::parse(arch);
  const Source unit = for_host(source);
  const std::string name = source.split_symbol.empty() ? "probe" : source.split_symbol;
  const std::string file = name + ".cpp", object = name + ".so";
  const PrivateFolder folder(search_.scratch_folder);
  write_source(unit, file, folder.path());
  if (!search_.keep_folder.empty()) write_source(unit, file, search_.keep_folder);
  // The compiler's own temporary files are removed with ours.
  const ProgramRun run =
      run_program(command(target, folder.path(), file, object),
                  {fmt::format("TMPDIR={}", folder.path().string()), "LC_ALL=C"});
  std::string log = without_folder(run.output, folder.path());
  std::vector<std::byte> code = read_bytes(folder.path() / object);
  if (!run.problem.empty() || !run.end.is_success || code.empty()) {
    const std::string values =
        fmt::format("source={} arch={} compiler={} status={}", name, arch, version(),
                    run.problem.empty() ? run.end.text : run.problem);
    if (is_failure_of_machine(run)) throw Error("the compiler failed", values, log);
    throw CompileError("cannot compile the kernel", values, std::move(log), unit.text);
  }
  Binary binary;
  binary.key = key(source, arch);
  binary.content = digest_of(code);
  binary.arch = arch;
  binary.compiler_version = version();
  binary.options = compile_options(arch);
  binary.cubin = std::move(code);
  for (const std::string& symbol : source.symbols) {
    binary.kernels.emplace_back().symbol = symbol;
  }
  binary.log = std::move(log);
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - begin;
  binary.compile_ms = elapsed.count();
  return binary;
}

}  // namespace

std::unique_ptr<Compiler> open_host_compiler(const HostCompilerSearch& search) {
  return std::make_unique<HostCompiler>(search);
}

}  // namespace attune
