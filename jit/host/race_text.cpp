// Races in words.
#include <fmt/format.h>

#include "jit/host/race_check.h"
#include "jit/host/symbolize.h"

namespace attune::host {
namespace {

std::string place_text(std::uint32_t offset, const RaceNames& names) {
  const std::uint32_t cta = names.window_bytes == 0 ? 0 : offset / names.window_bytes;
  const std::uint32_t in_window = offset - cta * names.window_bytes;
  const std::string of_cta = names.window_bytes == 0 ? "" : fmt::format(" of CTA {}", cta);
  if (in_window < names.dynamic_begin) {
    return fmt::format("static shared memory offset {}{}", in_window, of_cta);
  }
  return fmt::format("shared memory offset {}{}", in_window - names.dynamic_begin, of_cta);
}

std::string thread_text(int thread, const RaceNames& names) {
  if (names.window_bytes == 0) return fmt::format("thread {}", thread);
  return fmt::format("thread {} of CTA {}", thread % names.num_threads, thread / names.num_threads);
}

std::string side_text(const RaceSide& side, const RaceNames& names) {
  return fmt::format("{} of {} bytes at {} by {}", side.is_write ? "write" : "read", side.bytes,
                     place_text(side.offset, names), thread_text(side.thread, names));
}

std::string operation_text(const RaceSide& side) {
  const std::string name = to_text(side.operation);
  if (side.code == nullptr) return name;
  const std::string location = to_text(symbolize(side.code));
  return location.empty() ? name : fmt::format("{} at {}", name, location);
}

}  // namespace

std::string to_text(const Race& race, const RaceNames& names) {
  const std::string earlier =
      fmt::format("the {} ({})", side_text(race.earlier, names), operation_text(race.earlier));
  const std::string later =
      fmt::format("the {} ({})", side_text(race.later, names), to_text(race.later.operation));
  switch (race.kind) {
    case RaceKind::kUnordered:
      return fmt::format("no barrier is between {} and {}", earlier, later);
    case RaceKind::kInFlight:
      return fmt::format("nobody has waited for {} before {}", earlier, later);
    case RaceKind::kMissingFence:
      return fmt::format("no fence.proxy.async is between {} and {}", earlier, later);
  }
  return earlier;
}

Fault race_fault(const Race& race, const RaceNames& names) {
  Fault fault;
  fault.kind = race.kind == RaceKind::kMissingFence ? FaultKind::kMissingFence : FaultKind::kRace;
  fault.details = to_text(race, names);
  fault.code = race.later.code;
  return fault;
}

}  // namespace attune::host
