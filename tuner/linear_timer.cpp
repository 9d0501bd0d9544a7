#include "tuner/linear_timer.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/linear.h"
#include "templates/expert_plan.h"

namespace attune {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr float kSoftcap = 30;  // of logits, as Gemma 4 caps them

std::size_t round_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

LinearTimer::LinearTimer(Device& device, const Binary& probes, const Problem& problem)
    : replays_(device, probes),
      problem_(problem),
      entries_(typical_entries(problem.linear, problem.linear_tokens)),
      weight_bytes_(round_up(linear_weight_bytes(problem.linear))),
      list_(expert_list(device, entries_, replays_.stream())) {
  const std::size_t limit = device.free_memory_bytes() / 2;
  if (weight_bytes_ > limit) {
    throw Error("the weights for timing do not fit",
                fmt::format("problem={} needed_bytes={} limit_bytes={} (half of the free memory)",
                            problem.text(), weight_bytes_, limit),
                "free device memory");
  }
  // Between two launches on one copy lie several times the L2; large weights push themselves out. Of
  // experts a launch reads those of its group alone.
  const auto num_experts = static_cast<std::size_t>(std::max(1, problem.linear.num_experts));
  const std::size_t read_bytes = weight_bytes_ * entries_.size() / num_experts;
  const std::size_t wanted = (replays_.rotation_bytes() + read_bytes - 1) / read_bytes;
  const auto most = static_cast<std::size_t>(replays_.sizes().max_launches);
  num_copies_ = std::clamp<std::size_t>(wanted, 1, std::min(most, limit / weight_bytes_));
  weights_ = device.allocate(num_copies_ * weight_bytes_);
  const auto rows = static_cast<std::size_t>(problem.linear_tokens) * entries_.size();
  input_ = device.allocate(rows * problem.linear.in_features * kBytesPerElement);
  out_ = device.allocate(rows * problem.linear.out_features * sizeof(float));
  replays_.probes().fill_noise(weights_, replays_.stream());
  replays_.probes().fill_noise(input_, replays_.stream());
  device.synchronize(replays_.stream());
}

Timing LinearTimer::judge(const AttentionKernels& kernels, const Candidate& candidate, int,
                          const TimerOptions& options) {
  Device& device = replays_.device();
  const LinearKernel linear{kernels.split, candidate.config, problem_.linear,
                            plan_linear(problem_.linear, candidate.config, device.info().num_sms)};
  const auto launch = [&](std::size_t i) {
    launch_linear(device, linear,
                  {.weights = weights_.ptr() + i % num_copies_ * weight_bytes_,
                   .input = input_.ptr(),
                   .out = out_.ptr(),
                   .num_tokens = problem_.linear_tokens,
                   .softcap = kSoftcap,
                   .chosen = list_.ptr(),
                   .most_entries = static_cast<int>(entries_.size())},
                  replays_.stream());
  };
  return replays_.measure(kernels, candidate, 1, launch, options,
                          fmt::format("problem={}", problem_.text()));
}

}  // namespace attune
