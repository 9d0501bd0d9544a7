#include "jit/host/symbolize.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "jit/run_program.h"

namespace attune::host {
namespace {

namespace fs = std::filesystem;

std::string_view take_line(std::string_view* text) {
  const std::size_t end = text->find('\n');
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return line;
}

// Kernels are compiled in the root folder under names relative to it (run_program.h), and
// symbolizers join the two.
std::string_view as_compiled(std::string_view file) {
  std::error_code error;
  if (fs::exists(file, error)) return file;
  const std::size_t begin = file.find_first_not_of('/');
  return begin == std::string_view::npos ? file : file.substr(begin);
}

// Pairs of lines: a function, then "file:line" with maybe ":column" or " (discriminator 2)".
// "??" stands for what is unknown.
std::vector<CodeFrame> parse_frames(std::string_view text) {
  std::vector<CodeFrame> frames;
  while (!text.empty()) {
    const std::string_view function = take_line(&text);
    if (function.starts_with("addr2line: ")) continue;  // a warning
    std::string_view place = take_line(&text);
    place = place.substr(0, place.find(" ("));
    const std::size_t colon = place.rfind(':');
    if (function.empty() || function == "??" || colon == std::string_view::npos) continue;
    CodeFrame frame;
    frame.function = function;
    std::from_chars(place.data() + colon + 1, place.data() + place.size(), frame.line);
    if (place.substr(0, colon) != "??") frame.file = as_compiled(place.substr(0, colon));
    frames.push_back(std::move(frame));
  }
  return frames;
}

// The last name of a function, without its parameters, template arguments and return type: those
// of a kernel are longer than the rest of a report.
std::string short_name(std::string_view function) {
  std::string name;
  int depth = 0;
  for (const char c : function) {
    if (c == '<' || c == '(' || c == '{') ++depth;
    if (depth == 0) name += c;
    if (c == '>' || c == ')' || c == '}') --depth;
  }
  constexpr std::string_view kConst = " const";
  if (name.ends_with(kConst)) name.resize(name.size() - kConst.size());
  name.erase(0, name.find_last_of(" :") + 1);
  if (name.empty() || depth != 0) return std::string(function);
  return name == "operator" ? "a lambda" : name;
}

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : symbol;
}

CodeFrame frame_of_loader(const Dl_info& module, std::uintptr_t at) {
  const auto offset_from = [&](const void* base) {
    return at - reinterpret_cast<std::uintptr_t>(base);
  };
  std::string_view file = module.dli_fname;
  file.remove_prefix(file.rfind('/') + 1);
  if (module.dli_sname == nullptr) {
    return {fmt::format("+{:#x} of {}", offset_from(module.dli_fbase), file), "", 0};
  }
  return {fmt::format("{}+{:#x} of {}", demangled(module.dli_sname), offset_from(module.dli_saddr),
                      file),
          "", 0};
}

}  // namespace

CodeLocation symbolize(const void* code) {
  const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(code) - 1;  // in the call itself
  Dl_info module{};
  if (dladdr(reinterpret_cast<const void*>(at), &module) == 0 || module.dli_fname == nullptr) {
    return {};
  }
  std::error_code error;
  std::string file = fs::absolute(module.dli_fname, error).string();
  // A module in a memory file is named after a descriptor, which the child does not have.
  constexpr std::string_view kSelf = "/proc/self/";
  if (file.starts_with(kSelf)) {
    file = fmt::format("/proc/{}/{}", getpid(), file.substr(kSelf.size()));
  }
  const std::string offset =
      fmt::format("{:#x}", at - reinterpret_cast<std::uintptr_t>(module.dli_fbase));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"addr2line", "-f", "-C", "-i", "-e", file, offset},
        std::vector<std::string>{"llvm-symbolizer", "--inlines", "--demangle", "--output-style=GNU",
                                 "--obj=" + file, offset}}) {
    const ProgramRun run = run_program(command, {"LC_ALL=C"});
    if (!run.problem.empty() || !run.end.is_success) continue;
    std::vector<CodeFrame> frames = parse_frames(run.output);
    if (!frames.empty() && !frames.front().file.empty()) return {std::move(frames)};
  }
  return {{frame_of_loader(module, at)}};
}

std::string to_text(const CodeLocation& location) {
  std::string text;
  for (const CodeFrame& frame : location.frames) {
    // The last resort has no file and speaks for itself.
    const std::string one = frame.file.empty() ? frame.function
                                               : fmt::format("{}:{} ({})", frame.file, frame.line,
                                                             short_name(frame.function));
    text += text.empty() ? one : fmt::format(", inlined at {}", one);
  }
  return text;
}

}  // namespace attune::host
