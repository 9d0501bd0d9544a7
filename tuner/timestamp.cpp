#include "tuner/timestamp.h"

#include <chrono>
#include <ctime>

#include <fmt/chrono.h>

namespace attune {

std::string utc_timestamp() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
}

}  // namespace attune
