// Times launches by replays of a CUDA graph with a cold L2: what the timers of attention and of linear
// layers have in common.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "tuner/probes.h"
#include "tuner/timer.h"

namespace attune {

// Memory that launches take in turn, in units of the L2.
constexpr std::size_t kPoolOverL2 = 4;

class ReplayTimer {
 public:
  ReplayTimer(Device& device, const Binary& probes);

  Device& device() const { return device_; }
  const TimingSizes& sizes() const { return sizes_; }
  StreamHandle stream() const { return stream_.get(); }
  Probes& probes() { return probes_; }
  std::size_t rotation_bytes() const { return kPoolOverL2 * device_.info().l2_bytes; }
  void watch(DeviceMonitor& monitor) { onlooker_.emplace(monitor); }

  // `launch(i)` enqueues the launch number i on stream(); a graph has a multiple of `turns` of them.
  // The kernels have to live as long as the timer: it keeps the graphs of the candidates that it
  // measured last. Throws CudaError when a launch fails and Error, with `what`, when no sample is
  // usable.
  Timing measure(const AttentionKernels& kernels, const Candidate& candidate, int turns,
                 const std::function<void(std::size_t)>& launch, const TimerOptions& options,
                 const std::string& what);
  // What launches read has moved: all graphs go.
  void forget() { captured_.clear(); }

 private:
  struct Captured {
    const void* function;  // of the split kernel
    Graph graph;
    int num_launches;
  };

  void settle(const Captured& work, const TimerOptions& options);
  Timing sample(const Captured& work, const TimerOptions& options);
  Timing take_samples(const Captured& work, const TimerOptions& options);
  double replay_us(const Captured& work);

  Device& device_;
  const TimingSizes sizes_;
  Stream stream_;
  Probes probes_;
  StopWatch watch_;
  std::optional<Watch> onlooker_;
  DeviceMem evict_;
  std::map<Candidate, Captured> captured_;
};

}  // namespace attune
