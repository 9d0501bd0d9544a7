// One worker process (attune-compile-worker, -measure-worker, -tune-worker) and the socket to it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

// How a process ended.
struct ProcessEnd {
  std::string text;         // "exit status 3", "signal 9 (Killed)"
  bool is_crash = false;    // a signal that it raised itself; SIGKILL and such come from outside
  bool is_success = false;  // exit status 0
  int exit_status = -1;     // -1 after a signal
};
// `status` is what waitpid gave.
ProcessEnd describe_end(int status);

constexpr auto kMostEndWait = std::chrono::seconds(2);

// Starts the program in its own process group, so that Ctrl-C reaches only us; ends it, and
// whatever it started, in the destructor. Nothing here blocks but the wait for a killed process,
// which ends after kMostEndWait: the driver may hold it for longer while it stops a kernel.
class WorkerProcess {
 public:
  // Throws Error when the program cannot be started.
  explicit WorkerProcess(const std::string& program,
                         const std::vector<std::string>& arguments = {});
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  ~WorkerProcess();

  int socket() const { return socket_; }
  pid_t pid() const { return pid_; }
  bool has_unsent() const { return num_sent_ < unsent_.size(); }

  void send(const std::string& message);  // sends what the socket takes, keeps the rest
  void send_more();
  // Reads what has arrived. False at the end of the stream: the process has died or closed it.
  bool receive();
  // The next whole message of what was read.
  std::optional<std::string> next_message();

  // No more is sent: the process sees the end of its input, which asks it to end.
  void close_input();
  // Ends the process and says how it ended.
  ProcessEnd end();

 private:
  int socket_ = -1;
  pid_t pid_ = -1;
  std::string unsent_;
  std::size_t num_sent_ = 0;  // bytes of unsent_ that are gone
  std::string received_;
};

// Throws DeviceUnavailable unless `path` names a program; `name` is what it should be.
void require_program(const std::string& path, std::string_view name);

// Finds a worker program: beside the running program or the library that holds this code, or
// where an installation puts it relative to them. Throws DeviceUnavailable that lists the places
// and the environment `variable` that names one.
std::filesystem::path find_program(std::string_view name, std::string_view variable);
// The same for attune-compile-worker.
std::filesystem::path find_worker_program();

}  // namespace attune
