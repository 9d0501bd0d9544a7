#include "tuner/deadlines.h"

#include <algorithm>

#include "jit/host/host_target.h"

namespace attune {
namespace {

double base_s(bool is_host) { return is_host ? kHostBase_s : kGpuBase_s; }

}  // namespace

double verify_deadline_s(const DeviceInfo& device, double case_flops) {
  const bool is_host = is_host_arch(device.arch);
  return base_s(is_host) +
         kVerifyLaunches * case_flops / (is_host ? kSlowestHostFlops : kSlowestGpuFlops);
}

double time_deadline_s(const DeviceInfo& device, const Problem& problem, int kv_len,
                       const TimerOptions& options) {
  const bool is_host = is_host_arch(device.arch);
  const double launch_s =
      problem_flops(problem, kv_len) / (is_host ? kSlowestHostFlops : kSlowestGpuFlops) +
      problem_bytes(problem, kv_len) / (is_host ? kSlowestHostBytes : kSlowestGpuBytes);
  const TimingSizes sizes = timing_sizes(device);
  const int samples = std::min(options.max_samples, sizes.max_samples);
  // Two launches come before the graph is made.
  const int replays = sizes.settling_replays + sizes.warm_ups + samples;
  const int launches = 2 + replays * launches_per_graph(launch_s * 1e6, sizes);
  return base_s(is_host) + launches * launch_s;
}

}  // namespace attune
