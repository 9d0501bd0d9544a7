#include "cli/log.h"

#include <cstdlib>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace attune {
namespace {

// A logger with a pattern of its own; the sinks colour a terminal only, and lock stderr together.
spdlog::logger stderr_logger(const std::string& pattern) {
  const bool plain = std::getenv("NO_COLOR") != nullptr;
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(
      plain ? spdlog::color_mode::never : spdlog::color_mode::automatic);
  spdlog::logger logger("attune", std::move(sink));
  logger.set_pattern(pattern);
  logger.flush_on(spdlog::level::trace);
  return logger;
}

}  // namespace

struct Log::State {
  spdlog::logger lines = stderr_logger("attune: %v");
  spdlog::logger warnings = stderr_logger("attune: %^%l%$: %v");
  std::function<void()> clear;
};

Log::Log() : state_(std::make_shared<State>()) {}

void Log::warn(const std::string& text) const {
  if (state_->clear) state_->clear();
  state_->warnings.warn(text);
}

void Log::note(const std::string& text) const {
  if (state_->clear) state_->clear();
  state_->lines.info(text);
}

void Log::before_line(std::function<void()> clear) { state_->clear = std::move(clear); }

}  // namespace attune
