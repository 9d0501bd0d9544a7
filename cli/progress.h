// Progress of a long command: one line that is rewritten on a terminal, else a few plain lines.
#pragma once

#include <functional>
#include <mutex>
#include <ostream>
#include <string>
#include <utility>

#include "cli/log.h"
#include "tuner/tuner.h"

namespace attune {

// Thread-safe: a remark of another thread clears the line.
class Progress {
 public:
  // Seconds since any fixed moment.
  using Clock = std::function<double()>;
  Progress(std::ostream& out, bool is_terminal, Clock clock = steady_seconds);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const TuneProgress& progress);
  // Takes the line off the terminal; the next update writes it again.
  void clear();

  static double steady_seconds();

 private:
  bool is_due(const TuneProgress& progress, double now);
  std::string line(const TuneProgress& progress, double now) const;

  std::ostream& out_;
  const bool is_terminal_;
  const Clock clock_;
  std::mutex mutex_;  // guards what follows
  std::string phase_;
  double phase_start_;  // the update before its first one: that is when its work began
  double last_update_;
  double last_written_ = 0;
  std::size_t last_done_ = 0;
  bool line_is_shown_ = false;
};

// Keeps remarks and the progress line apart while both are there.
class ClearedFor {
 public:
  ClearedFor(Log log, Progress& progress) : log_(std::move(log)) {
    log_.before_line([&progress] { progress.clear(); });
  }
  ~ClearedFor() { log_.before_line({}); }
  ClearedFor(const ClearedFor&) = delete;
  ClearedFor& operator=(const ClearedFor&) = delete;

 private:
  Log log_;
};

// "4.2 s", "1 min 05 s", "2 h 07 min".
std::string elapsed_text(double seconds);

}  // namespace attune
