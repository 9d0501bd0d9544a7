// What a candidate's time should be by what the device can do: a pure function that ranks candidates
// before any is compiled. docs/tuning.md has the terms, their reasons and how well they rank.
#pragma once

#include <optional>
#include <vector>

#include "jit/binary.h"
#include "jit/device_info.h"
#include "templates/family.h"
#include "templates/problem.h"
#include "tuner/timer.h"

namespace attune {

// What the terms of a prediction count in.
struct DeviceRates {
  double read_bytes_per_s = 0;  // of the whole device
  double clock_hz = 0;          // of work that is bound by memory
  // Of an SM in a clock: products of mma.sync and of wgmma (0: it has none), in FLOPs.
  double mma_flops = 0;
  double wgmma_flops = 0;
};
// Measured on an H200 (bench/results), published numbers for other architectures; by SMs.
DeviceRates device_rates(const DeviceInfo& device);
// The same rates as what the device can do at most, where nobody has measured it. Empty for the host
// device and for architectures without rates of their own.
std::optional<Ceilings> known_ceilings(const DeviceInfo& device);

// Microseconds of a launch with sequences of `kv_len`, combine included. `split` are the registers
// and so on of the split kernel where it is compiled.
double predicted_us(const Problem& problem, const Candidate& candidate, const DeviceInfo& device,
                    int kv_len, const KernelResources* split = nullptr);

// The candidates by their worst regret over the problem's range, as predicted; the best first.
std::vector<Candidate> ranked(const Problem& problem, const std::vector<Candidate>& candidates,
                              const DeviceInfo& device);

}  // namespace attune
