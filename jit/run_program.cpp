#include "jit/run_program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace attune {
namespace {

std::vector<char*> pointers_to(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Our environment, passed on unread but for the names that `variables` replace.
std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  std::vector<std::string> all = variables;
  for (char** entry = __environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const auto same_name = [&](const std::string& other) { return other.starts_with(name); };
    if (std::none_of(variables.begin(), variables.end(), same_name)) all.emplace_back(text);
  }
  return all;
}

// posix_spawn for the reasons of worker_process.cpp. Returns an error number.
int spawn(std::vector<std::string> arguments, std::vector<std::string> environment, int output,
          pid_t* pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  // Last: where our own input is closed, `output` may have its number.
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addchdir_np(&actions, "/");
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A compile worker ignores some signals, and its children would too.
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int error = posix_spawnp(pid, arguments.front().c_str(), &actions, &attributes,
                                 pointers_to(&arguments).data(), pointers_to(&environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

std::string read_to_end(int fd) {
  std::string text;
  char buffer[1 << 14];
  while (true) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got > 0) text.append(buffer, static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR)) return text;
  }
}

}  // namespace

ProgramRun run_program(const std::vector<std::string>& arguments,
                       const std::vector<std::string>& variables) {
  ProgramRun run;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    run.problem = std::strerror(errno);
    return run;
  }
  pid_t pid = -1;
  const int error = spawn(arguments, environment_with(variables), ends[1], &pid);
  close(ends[1]);
  if (error == 0) {
    run.output = read_to_end(ends[0]);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    run.end = describe_end(status);
  } else {
    run.problem = std::strerror(error);
  }
  close(ends[0]);
  return run;
}

}  // namespace attune
