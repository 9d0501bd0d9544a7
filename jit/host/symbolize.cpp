#include "jit/host/symbolize.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace attune::host {
namespace {

using Clock = std::chrono::steady_clock;

// A symbolizer reads one file of a few hundred KiB; one that hangs must not hang the report.
constexpr std::chrono::seconds kToolLimit{10};

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  ~Pipe() {
    close_write();
    if (read_end >= 0) close(read_end);
  }
  void close_write() {
    if (write_end >= 0) close(write_end);
    write_end = -1;
  }
};

// The program's standard output; its error output is dropped. Found on PATH like any command.
std::optional<pid_t> start(const std::vector<std::string>& command, int output) {
  std::vector<char*> arguments;
  for (const std::string& one : command) arguments.push_back(const_cast<char*>(one.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), __environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return std::nullopt;
  return pid;
}

// Everything up to the end, or nothing when that takes too long.
std::optional<std::string> read_all(int file) {
  std::string text;
  const Clock::time_point deadline = Clock::now() + kToolLimit;
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd ready{file, POLLIN, 0};
    const int num_ready = left.count() <= 0 ? 0 : poll(&ready, 1, static_cast<int>(left.count()));
    if (num_ready < 0 && errno == EINTR) continue;
    if (num_ready <= 0) return std::nullopt;
    char buffer[4096];
    const ssize_t got = read(file, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

std::optional<std::string> output_of(const std::vector<std::string>& command) {
  Pipe pipe;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  pipe.read_end = ends[0];
  pipe.write_end = ends[1];
  const std::optional<pid_t> pid = start(command, pipe.write_end);
  if (!pid) return std::nullopt;
  pipe.close_write();
  std::optional<std::string> text = read_all(pipe.read_end);
  if (!text) kill(*pid, SIGKILL);
  int status = 0;
  while (waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return text;
}

std::string_view take_line(std::string_view* text) {
  const std::size_t end = text->find('\n');
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return line;
}

// Pairs of lines: a function, then "file:line" with maybe ":column" or " (discriminator 2)".
// "??" stands for what is unknown.
std::vector<CodeFrame> parse_frames(std::string_view text) {
  std::vector<CodeFrame> frames;
  while (!text.empty()) {
    const std::string_view function = take_line(&text);
    std::string_view place = take_line(&text);
    place = place.substr(0, place.find(" ("));
    const std::size_t colon = place.rfind(':');
    if (function.empty() || function == "??" || colon == std::string_view::npos) continue;
    CodeFrame frame;
    frame.function = function;
    std::from_chars(place.data() + colon + 1, place.data() + place.size(), frame.line);
    if (place.substr(0, colon) != "??") frame.file = place.substr(0, colon);
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
  // A module in a memory file is named after a descriptor, which the child does not have.
  std::string file = module.dli_fname;
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
    if (const std::optional<std::string> text = output_of(command)) {
      std::vector<CodeFrame> frames = parse_frames(*text);
      if (!frames.empty() && !frames.front().file.empty()) return {std::move(frames)};
    }
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
