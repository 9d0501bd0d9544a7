// Cold times of linear layers: launches take copies of the weights in turn. Those of experts have the
// typical_entries of their tokens.
#pragma once

#include <vector>

#include "templates/model_plan.h"
#include "tuner/replay_timer.h"

namespace attune {

class LinearTimer : public CandidateTimer {
 public:
  // Weights and input are noise. Throws Error when the weights do not fit into half of the free memory.
  LinearTimer(Device& device, const Binary& probes, const Problem& problem);

  // With all tokens that the problem has, whatever `kv_len` is.
  Timing judge(const AttentionKernels& kernels, const Candidate& candidate, int kv_len,
               const TimerOptions& options = {}) override;
  void watch(DeviceMonitor& monitor) override { replays_.watch(monitor); }

 private:
  ReplayTimer replays_;
  const Problem problem_;
  const std::vector<int> entries_;
  const std::size_t weight_bytes_;  // from one copy to the next
  DeviceMem list_;                  // RouteParams::chosen
  std::size_t num_copies_;
  DeviceMem weights_, input_, out_;
};

}  // namespace attune
