#include "tuner/replay_timer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"

namespace attune {
namespace {

// A single launch this far above the limit is not worth a graph; the constant is launch latency.
constexpr double kHopelessFactor = 2;
constexpr double kHopelessUs = 20;
// Windows in which a clock jumped before the samples are taken as they come.
constexpr int kMostWindows = 3;
// Graphs that are kept for the next round: finalists take turns at one length.
constexpr std::size_t kMostGraphs = 8;

}  // namespace

ReplayTimer::ReplayTimer(Device& device, const Binary& probes)
    : device_(device),
      sizes_(timing_sizes(device.info())),
      stream_(device.create_stream()),
      probes_(device, probes),
      watch_(device),
      evict_(device.allocate(
          std::max<std::size_t>(16, sizes_.evict_over_l2 * device.info().l2_bytes))) {
  device_.fill_bytes(evict_.ptr(), 0, evict_.bytes(), stream_.get());
}

Timing ReplayTimer::measure(const AttentionKernels& kernels, const Candidate& candidate, int turns,
                            const std::function<void(std::size_t)>& launch,
                            const TimerOptions& options, const std::string& what) {
  auto known = captured_.find(candidate);
  if (options.new_graph || known == captured_.end() ||
      known->second.function != kernels.split.function) {
    launch(0);  // the first launch of a kernel may load it
    const auto once_us = [&] { return watch_.time_us(stream_.get(), [&] { launch(1); }); };
    double launch_us = once_us();
    const double limit_us = options.abandon_above_us;
    if (limit_us > 0 && launch_us > kHopelessFactor * limit_us + kHopelessUs) {
      launch_us = std::min(launch_us, once_us());  // something may have held the first one up
      if (launch_us > kHopelessFactor * limit_us + kHopelessUs) return summarize({launch_us});
    }
    const int wanted = launches_per_graph(launch_us, sizes_);
    const int num_launches = (wanted + turns - 1) / turns * turns;
    if (captured_.size() >= kMostGraphs) captured_.clear();
    Graph graph = device_.capture(stream_.get(), [&] {
      for (int i = 0; i < num_launches; ++i) launch(static_cast<std::size_t>(i));
    });
    known = captured_
                .insert_or_assign(candidate,
                                  Captured{kernels.split.function, std::move(graph), num_launches})
                .first;
    settle(known->second, options);
  }
  Timing timing = sample(known->second, options);
  if (timing.num_samples == 0) {
    throw Error(
        "no usable time sample",
        fmt::format("candidate={} {} samples={}", candidate.text(), what, options.max_samples),
        "check the device's clock with 'attune doctor'");
  }
  return timing;
}

void ReplayTimer::settle(const Captured& work, const TimerOptions& options) {
  double passed_us = 0;
  for (int i = 0; i < sizes_.settling_replays && passed_us < sizes_.settling_us; ++i) {
    const double us = replay_us(work);
    if (options.abandon_above_us > 0 && us > options.abandon_above_us)
      return;  // is slow at its best
    passed_us += us * work.num_launches;
  }
}

// The samples of a window in which no clock jumps, as far as there is one.
Timing ReplayTimer::sample(const Captured& work, const TimerOptions& options) {
  int num_dropped = 0;
  for (int window = 1;; ++window) {
    for (int i = 0; i < sizes_.warm_ups; ++i) replay_us(work);
    const DeviceState before = onlooker_ ? onlooker_->look() : DeviceState{};
    Timing timing = take_samples(work, options);
    if (onlooker_) timing.conditions = onlooker_->since(before);
    if (timing.conditions.steady || window == kMostWindows) {
      timing.num_dropped += num_dropped;
      return timing;
    }
    num_dropped += timing.num_samples + timing.num_dropped;
  }
}

double ReplayTimer::replay_us(const Captured& work) {
  if (sizes_.evict_over_l2 > 0) probes_.read(evict_, stream_.get());
  return watch_.time_us(stream_.get(), [&] { device_.launch(work.graph, stream_.get()); }) /
         work.num_launches;
}

Timing ReplayTimer::take_samples(const Captured& work, const TimerOptions& options) {
  const int max_samples = std::min(options.max_samples, sizes_.max_samples);
  const int min_samples = std::min(options.min_samples, max_samples);
  Timing timing;
  std::vector<double> samples;
  int num_above = 0;
  for (int i = 0; i < max_samples; ++i) {
    samples.push_back(replay_us(work));
    if (options.abandon_above_us > 0 && samples.back() > options.abandon_above_us) ++num_above;
    if (num_above > 0 && num_above >= std::min(2, max_samples)) break;
    if (i + 1 < min_samples) continue;
    timing = summarize(samples);
    if (timing.num_samples >= min_samples &&
        timing.spread_us <= options.relative_spread * timing.median_us) {
      break;
    }
  }
  return summarize(samples);
}

}  // namespace attune
