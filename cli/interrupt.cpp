#include "cli/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"

namespace attune {

Interrupt::Interrupt(Log log) : log_(std::move(log)) {
  sigemptyset(&watched_);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&watched_, number);
  pthread_sigmask(SIG_BLOCK, &watched_, &before_);
  signal_fd_ = signalfd(-1, &watched_, SFD_CLOEXEC);
  quit_fd_ = eventfd(0, EFD_CLOEXEC);
  if (signal_fd_ < 0 || quit_fd_ < 0) {
    throw Error("cannot watch for Ctrl-C", fmt::format("error={}", std::strerror(errno)),
                "close some files or raise the limit on them");
  }
  thread_ = std::thread([this] { watch(); });
}

Interrupt::~Interrupt() {
  eventfd_write(quit_fd_, 1);
  thread_.join();
  close(quit_fd_);
  close(signal_fd_);
  // A signal that came too late to stop anything must not end the process after its work is done.
  const timespec now{};
  while (sigtimedwait(&watched_, nullptr, &now) > 0) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Interrupt::watch() {
  while (true) {
    pollfd fds[] = {{signal_fd_, POLLIN, 0}, {quit_fd_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;  // EINTR
    if (fds[1].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signal_fd_, &info, sizeof(info)) != sizeof(info)) continue;
    const int number = static_cast<int>(info.ssi_signo);
    // What is stored is whole: the cache commits in transactions, and workers end with their input.
    if (signal_ != 0) _exit(128 + number);
    signal_ = number;
    log_.note(fmt::format("{}: keeping what is done; once more ends at once", strsignal(number)));
  }
}

}  // namespace attune
