// Ctrl-C and SIGTERM as a flag that long work polls.
#pragma once

#include <signal.h>

#include <atomic>
#include <thread>

#include "cli/log.h"

namespace attune {

// While it lives, the first SIGINT, SIGTERM or SIGHUP sets the flag and the second one ends the
// process at once. Made before any other thread of the command, so that all of them leave the
// signals to it.
class Interrupt {
 public:
  explicit Interrupt(Log log);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const { return signal_ != 0; }
  // 128 + the signal, as shells report it: 130 for Ctrl-C.
  int exit_code() const { return 128 + signal_; }

 private:
  void watch();

  Log log_;
  sigset_t watched_;
  sigset_t before_;
  std::atomic<int> signal_ = 0;
  int quit_fd_ = -1;
  int signal_fd_ = -1;
  std::thread thread_;
};

}  // namespace attune
