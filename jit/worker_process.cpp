#include "jit/worker_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/worker_protocol.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr auto kEndPollInterval = std::chrono::milliseconds(1);

// An owner for the end of the socket that goes to the child.
struct FileDescriptor {
  int fd = -1;
  ~FileDescriptor() {
    if (fd >= 0) close(fd);
  }
};

// posix_spawn, not fork: a large process would copy its page tables, and only async-signal-safe
// calls are allowed after fork in one with threads.
int spawn(std::vector<std::string> arguments, int socket, pid_t* pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, socket, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  // The environment is passed on unread: the loader finds NVRTC by it.
  const int error =
      posix_spawn(pid, pointers.front(), &actions, &attributes, pointers.data(), __environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// The folder of a file with all links resolved; empty when there is none.
fs::path folder_of(const fs::path& file) {
  std::error_code error;
  const fs::path real = fs::canonical(file, error);
  return error ? fs::path() : real.parent_path();
}

}  // namespace

ProcessEnd describe_end(int status) {
  if (!WIFSIGNALED(status)) {
    const int code = WEXITSTATUS(status);
    return {fmt::format("exit status {}", code), false, code == 0, code};
  }
  const int number = WTERMSIG(status);
  const bool is_from_outside = number == SIGKILL || number == SIGTERM || number == SIGHUP;
  return {fmt::format("signal {} ({})", number, strsignal(number)), !is_from_outside, false};
}

WorkerProcess::WorkerProcess(const std::string& program,
                             const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {program};
  all.insert(all.end(), arguments.begin(), arguments.end());
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error("cannot create a socket for a worker",
                fmt::format("error={}", std::strerror(errno)));
  }
  socket_ = ends[0];
  const FileDescriptor child{ends[1]};
  const int flags = fcntl(socket_, F_GETFL);
  fcntl(socket_, F_SETFL, flags | O_NONBLOCK);
  if (const int error = spawn(std::move(all), child.fd, &pid_); error != 0) {
    close(socket_);
    throw Error("cannot start a worker",
                fmt::format("program={} error={}", program, std::strerror(error)),
                "check that it is an executable file");
  }
}

WorkerProcess::~WorkerProcess() { end(); }

void WorkerProcess::send(const std::string& message) {
  unsent_ += frame(message);
  send_more();
}

// A dead worker is noticed by receive(), so a failed send only drops what nobody will read.
void WorkerProcess::send_more() {
  while (has_unsent()) {
    const ssize_t sent =
        ::send(socket_, unsent_.data() + num_sent_, unsent_.size() - num_sent_, MSG_NOSIGNAL);
    if (sent > 0) {
      num_sent_ += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      break;
    }
  }
  unsent_.clear();
  num_sent_ = 0;
}

bool WorkerProcess::receive() {
  std::vector<char> buffer(1 << 16);
  while (true) {
    const ssize_t got = ::recv(socket_, buffer.data(), buffer.size(), 0);
    if (got > 0) {
      received_.append(buffer.data(), static_cast<std::size_t>(got));
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else {
      return got < 0 && errno == EAGAIN;
    }
  }
}

std::optional<std::string> WorkerProcess::next_message() { return take_frame(&received_); }

void WorkerProcess::close_input() { shutdown(socket_, SHUT_WR); }

ProcessEnd WorkerProcess::end() {
  if (pid_ < 0) return {};
  close(socket_);
  int status = 0;
  // One that ended by itself keeps its own status: it is a zombie until the wait below.
  pid_t ended = waitpid(pid_, &status, WNOHANG);
  kill(-pid_, SIGKILL);  // the group: also what the program started
  const auto deadline = std::chrono::steady_clock::now() + kMostEndWait;
  while (ended != pid_ && (ended >= 0 || errno == EINTR)) {
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(kEndPollInterval);
    ended = waitpid(pid_, &status, WNOHANG);
  }
  const bool is_known = ended == pid_;
  pid_ = -1;
  socket_ = -1;
  return is_known ? describe_end(status) : ProcessEnd{"killed, but not gone yet"};
}

void require_program(const std::string& path, std::string_view name) {
  if (access(path.c_str(), X_OK) == 0 && !fs::is_directory(path)) return;
  throw DeviceUnavailable(fmt::format("{} cannot be run", name), fmt::format("path={}", path),
                          "name an executable file, or leave the path empty");
}

std::filesystem::path find_program(std::string_view name, std::string_view variable) {
  std::vector<fs::path> folders = {folder_of("/proc/self/exe")};
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&find_program), &info) != 0 && info.dli_fname != nullptr) {
    folders.push_back(folder_of(info.dli_fname));
  }
  std::string looked_at;
  for (const fs::path& folder : folders) {
    if (folder.empty()) continue;
    // "../../bin" serves a library in lib/<machine>.
    for (const char* relative :
         {".", "../bin", "../../bin", "../lib/attune", "../libexec/attune"}) {
      const fs::path candidate = (folder / relative / name).lexically_normal();
      if (access(candidate.c_str(), X_OK) == 0) return candidate;
      looked_at += fmt::format("{}{}", looked_at.empty() ? "" : ", ", candidate.string());
    }
  }
  throw DeviceUnavailable(fmt::format("the program {} is missing", name),
                          fmt::format("looked at {}", looked_at),
                          fmt::format("install it beside attune, or name it in {}", variable));
}

std::filesystem::path find_worker_program() {
  return find_program("attune-compile-worker", "ATTUNE_WORKER");
}

}  // namespace attune
