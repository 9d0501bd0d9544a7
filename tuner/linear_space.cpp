#include "tuner/linear_space.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "templates/model_plan.h"

namespace attune {
namespace {

// Of an SM's shared memory: fewer bytes under way leave the memory idle. The fastest ones have more than
// half of it [h200].
constexpr int kLeastShare = 4;

int passes_of(const Problem& problem, const KernelConfig& config, const DeviceInfo& device) {
  return plan_linear(problem.linear, config, device.num_sms).num_passes;
}

int slots_bytes(const Problem& problem, const KernelConfig& config) {
  return kLinearShares * config.num_stages * linear_slot_bytes(config, problem.linear.weights);
}

std::optional<KernelConfig> fallback_of(const Problem& problem, const DeviceInfo& device) {
  return default_linear_config(problem.linear_tokens, problem.linear,
                               device.max_smem_per_block_bytes);
}

// Why `one` is not tried beside the others, if so.
std::optional<std::string> reason_against(const Problem& problem, const DeviceInfo& device,
                                          const KernelConfig& one,
                                          const std::vector<Candidate>& all) {
  const int bytes = slots_bytes(problem, one);
  if (kLeastShare * bytes < device.smem_per_sm_bytes) {
    return fmt::format("slots_bytes={}: below a quarter of the SM's {}", bytes,
                       device.smem_per_sm_bytes);
  }
  const int passes = passes_of(problem, one, device);
  for (const Candidate& other : all) {
    const KernelConfig& config = other.config;
    if (one.num_stages == 1 && config.num_stages > 1) {
      return fmt::format(
          "num_stages=1: a slot is filled while another is worked on, and {} has room",
          text_of(config));
    }
    if (config.block_n < one.block_n && config.num_stages == one.num_stages &&
        passes_of(problem, config, device) == passes) {
      return fmt::format("block_n={}: {} has as few passes, {}", one.block_n, text_of(config),
                         passes);
    }
  }
  return std::nullopt;
}

}  // namespace

void drop_poor_linear(const Problem& problem, const DeviceInfo& device, CandidateSpace* space) {
  const std::vector<Candidate> all = space->kept;
  const auto fallback = fallback_of(problem, device);
  std::erase_if(space->kept, [&](const Candidate& one) {
    if (one.config == fallback) return false;
    const auto reason = reason_against(problem, device, one.config, all);
    if (reason) space->pruned.push_back({one, {RejectReason::kUnsupported, *reason}});
    return reason.has_value();
  });
}

Candidate default_linear_candidate(const Problem& problem, const DeviceInfo& device) {
  return {std::string(families_of(problem.op).front().name), fallback_of(problem, device).value(),
          1};
}

std::vector<Candidate> ranked_linear(const Problem& problem,
                                     const std::vector<Candidate>& candidates,
                                     const DeviceInfo& device) {
  const auto rank = [&](const Candidate& candidate) {
    return std::make_tuple(candidate.config.num_stages == 1,
                           passes_of(problem, candidate.config, device),
                           -slots_bytes(problem, candidate.config));
  };
  std::vector<Candidate> order = candidates;
  std::stable_sort(order.begin(), order.end(),
                   [&](const Candidate& a, const Candidate& b) { return rank(a) < rank(b); });
  return order;
}

}  // namespace attune
