#include "tuner/conditions.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace attune {
namespace {

// 0 is not known.
int lower_clock(int a, int b) { return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b); }

bool has_jumped(int before_mhz, int after_mhz) {
  if (before_mhz == 0 || after_mhz == 0) return false;
  return std::abs(after_mhz - before_mhz) > kClockJump * std::max(before_mhz, after_mhz);
}

}  // namespace

Conditions conditions_between(const DeviceState& before, const DeviceState& after, int foreign) {
  Conditions conditions;
  conditions.sm_clock_mhz = lower_clock(before.sm_clock_mhz, after.sm_clock_mhz);
  conditions.memory_clock_mhz = lower_clock(before.memory_clock_mhz, after.memory_clock_mhz);
  conditions.throttle = before.throttle | after.throttle;
  conditions.foreign_processes = foreign;
  conditions.steady = !has_jumped(before.sm_clock_mhz, after.sm_clock_mhz) &&
                      !has_jumped(before.memory_clock_mhz, after.memory_clock_mhz);
  return conditions;
}

Conditions merged(const Conditions& a, const Conditions& b) {
  return {lower_clock(a.sm_clock_mhz, b.sm_clock_mhz),
          lower_clock(a.memory_clock_mhz, b.memory_clock_mhz), a.throttle | b.throttle,
          std::max(a.foreign_processes, b.foreign_processes), a.steady && b.steady};
}

Conditions Watch::since(const DeviceState& before) {
  const DeviceState after = look();
  return conditions_between(before, after, std::max(count_others(before), count_others(after)));
}

int Watch::count_others(const DeviceState& state) {
  if (!state.processes) return 0;
  if (*state.processes != listed_) {
    listed_ = *state.processes;
    num_others_ = count_foreign(listed_, own_processes(), static_cast<unsigned>(getpid()));
  }
  return num_others_;
}

}  // namespace attune
