#include "jit/worker_channel.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/worker_protocol.h"

namespace attune {
namespace {

bool write_all(int fd, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = write(fd, bytes.data() + done, bytes.size() - done);
    if (wrote > 0) done += static_cast<std::size_t>(wrote);
    if (wrote < 0 && errno != EINTR) return false;
  }
  return true;
}

}  // namespace

void end_process_group() {
  if (getpgrp() == getpid()) kill(0, SIGKILL);
  _exit(0);
}

struct WorkerChannel::State {
  void read_input(const std::function<void()>& at_end) {
    char buffer[1 << 16];
    while (true) {
      const ssize_t got = read(STDIN_FILENO, buffer, sizeof(buffer));
      if (got == 0 || (got < 0 && errno != EINTR)) break;
      if (got < 0) continue;
      const std::lock_guard lock(mutex);
      received.append(buffer, static_cast<std::size_t>(got));
      changed.notify_one();
    }
    bool is_busy = false;
    {
      const std::lock_guard lock(mutex);
      ended = true;
      is_busy = has_message;
      changed.notify_one();
    }
    if (is_busy) at_end();
  }

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::string received;
  bool ended = false;
  bool has_message = false;  // from when next() gives one until it is asked for another
};

WorkerChannel::WorkerChannel(std::function<void()> at_end) : state_(std::make_shared<State>()) {
  signal(SIGINT, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);  // a write fails instead
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  answers_ = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (answers_ < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    throw Error("a worker has no standard output or error",
                fmt::format("error={}", std::strerror(errno)), "let attune start it");
  }
  std::thread([state = state_, at_end = std::move(at_end)] { state->read_input(at_end); }).detach();
}

std::optional<std::string> WorkerChannel::next() {
  std::unique_lock lock(state_->mutex);
  state_->has_message = false;
  while (true) {
    if (auto message = take_frame(&state_->received)) {
      state_->has_message = true;
      return message;
    }
    if (state_->ended) return std::nullopt;
    state_->changed.wait(lock);
  }
}

bool WorkerChannel::answer(const std::string& body) const {
  return write_all(answers_, frame(body));
}

}  // namespace attune
