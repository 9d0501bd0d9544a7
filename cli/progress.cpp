#include "cli/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace attune {
namespace {

// On a terminal; a candidate can take a fraction of a millisecond.
constexpr double kRedrawSeconds = 0.1;
// Plain lines: never closer than the first, never further apart than the second, between them each
// tenth of the work.
constexpr double kMinLineSeconds = 2;
constexpr double kMaxLineSeconds = 30;
constexpr std::size_t kLinesPerPhase = 10;
// Longer texts would wrap, and a wrapped line cannot be rewritten.
constexpr std::size_t kTerminalColumns = 79;

}  // namespace

std::string elapsed_text(double seconds) {
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<long>(std::lround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

double Progress::steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Progress::Progress(std::ostream& out, bool is_terminal, Clock clock)
    : out_(out),
      is_terminal_(is_terminal),
      clock_(std::move(clock)),
      phase_start_(clock_()),
      last_update_(phase_start_) {}

Progress::~Progress() { clear(); }

bool Progress::is_due(const TuneProgress& progress, double now) {
  const bool starts = progress.phase != phase_ || progress.done < last_done_;
  if (starts) {
    phase_ = progress.phase;
    phase_start_ = last_update_;
  }
  last_update_ = now;
  const double since = now - last_written_;
  if (is_terminal_) return starts || since >= kRedrawSeconds || progress.done == progress.total;
  // The beginning of a phase is news, but phases of one problem can be short.
  if (since < kMinLineSeconds && last_written_ > 0) return false;
  const bool has_stepped =
      (progress.done - std::min(last_done_, progress.done)) * kLinesPerPhase >= progress.total;
  return starts || has_stepped || since >= kMaxLineSeconds || progress.done == progress.total;
}

std::string Progress::line(const TuneProgress& progress, double now) const {
  const double elapsed = now - phase_start_;
  std::string text = fmt::format("{} {}", progress.phase, progress.done);
  if (progress.total > 0) text += fmt::format("/{}", progress.total);  // 0: nobody knows
  text += ", " + elapsed_text(elapsed);
  if (progress.done > 0 && progress.total > progress.done) {
    const double per_item = elapsed / static_cast<double>(progress.done);
    const double left = per_item * static_cast<double>(progress.total - progress.done);
    text += fmt::format(", {} left", elapsed_text(left));
  }
  if (!progress.what.empty()) text += "  " + progress.what;
  return text;
}

void Progress::update(const TuneProgress& progress) {
  const std::lock_guard lock(mutex_);
  const double now = clock_();
  if (!is_due(progress, now)) return;
  const std::string text = line(progress, now);
  if (is_terminal_) {
    out_ << "\r\033[K" << text.substr(0, kTerminalColumns) << std::flush;
    line_is_shown_ = true;
  } else {
    out_ << text << std::endl;
  }
  last_written_ = now;
  last_done_ = progress.done;
}

void Progress::clear() {
  const std::lock_guard lock(mutex_);
  if (line_is_shown_) out_ << "\r\033[K" << std::flush;
  line_is_shown_ = false;
}

}  // namespace attune
