// Under which conditions of the device samples were taken, and whether they may be trusted.
#pragma once

#include <vector>

#include "jit/device_monitor.h"

namespace attune {

// Plain values: they travel between processes and into the cache.
struct Conditions {
  int sm_clock_mhz = 0;  // the lowest seen; 0: not known
  int memory_clock_mhz = 0;
  unsigned throttle = 0;      // bits of DeviceState, of any moment
  int foreign_processes = 0;  // the most seen at once
  bool steady = true;         // no clock moved by more than kClockJump during the samples

  // Whoever reads the times should know that they may not be the device's own.
  bool provisional() const { return foreign_processes > 0 || !steady; }
  friend bool operator==(const Conditions&, const Conditions&) = default;
};

// A clock that moves by more than this between two looks has jumped: its samples are dropped.
constexpr double kClockJump = 0.03;

// Of the samples between two looks at the device, with so many processes of others.
Conditions conditions_between(const DeviceState& before, const DeviceState& after, int foreign);

// Of samples taken under one or the other.
Conditions merged(const Conditions& a, const Conditions& b);

// Looks at a device on behalf of whoever takes samples on it. The process that owns the device has
// to ask: its own number is how it is told from others.
class Watch {
 public:
  explicit Watch(DeviceMonitor& monitor) : monitor_(monitor) {}
  DeviceState look() { return monitor_.read(); }
  // Of the samples since `before`.
  Conditions since(const DeviceState& before);

 private:
  int count_others(const DeviceState& state);

  DeviceMonitor& monitor_;
  std::vector<unsigned> listed_;  // what was listed last
  int num_others_ = 0;            // of them
};

}  // namespace attune
