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
  if (names.num_threads == 0) return fmt::format("thread {}", thread);
  return fmt::format("thread {} of CTA {}", thread % names.num_threads, thread / names.num_threads);
}

std::string side_text(const RaceSide& side, const RaceNames& names) {
  return fmt::format("{} of {} bytes at {} by {}", side.is_write ? "write" : "read", side.bytes,
                     place_text(side.offset, names), thread_text(side.thread, names));
}

const char* relation_text(RaceKind kind) {
  switch (kind) {
    case RaceKind::kUnordered:
      return "no barrier orders it after";
    case RaceKind::kInFlight:
      return "nobody has waited for the asynchronous";
    case RaceKind::kMissingFence:
      return "no fence.proxy.async makes visible to it";
  }
  return "?";
}

}  // namespace

std::string to_text(const Race& race, const RaceNames& names) {
  std::string earlier = to_text(race.earlier.operation);
  if (race.earlier.code != nullptr) {
    const std::string location = to_text(symbolize(race.earlier.code));
    if (!location.empty()) earlier += fmt::format(" at {}", location);
  }
  return fmt::format("{} ({}): {} the {} ({}),", side_text(race.later, names),
                     to_text(race.later.operation), relation_text(race.kind),
                     side_text(race.earlier, names), earlier);
}

Fault race_fault(const Race& race, const RaceNames& names) {
  Fault fault;
  fault.kind = race.kind == RaceKind::kMissingFence ? FaultKind::kMissingFence : FaultKind::kRace;
  fault.details = to_text(race, names);
  fault.code = race.later.code;
  return fault;
}

}  // namespace attune::host
