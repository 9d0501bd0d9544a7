#include "tuner/linear_space.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

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
  return default_linear_config(problem.linear, problem.linear_tokens,
                               device.max_smem_per_block_bytes, device.num_sms);
}

// Why `one` is not tried whatever else is there, if so.
std::optional<std::string> reason_alone(const Problem& problem, const DeviceInfo& device,
                                        const KernelConfig& one) {
  const int bytes = slots_bytes(problem, one);
  if (kLeastShare * bytes >= device.smem_per_sm_bytes) return std::nullopt;
  return fmt::format("slots_bytes={}: below a quarter of the SM's {}", bytes,
                     device.smem_per_sm_bytes);
}

// Why `one` is not tried beside `others`, which are, if so.
std::optional<std::string> reason_beside(const Problem& problem, const DeviceInfo& device,
                                         const KernelConfig& one,
                                         const std::vector<KernelConfig>& others) {
  const int passes = passes_of(problem, one, device);
  for (const KernelConfig& other : others) {
    if (one.num_stages == 1 && other.num_stages > 1) {
      return fmt::format(
          "num_stages=1: a slot is filled while another is worked on, and {} has room",
          text_of(other));
    }
    if (other.block_n < one.block_n && other.num_stages == one.num_stages &&
        passes_of(problem, other, device) == passes) {
      return fmt::format("block_n={}: {} has as few passes, {}", one.block_n, text_of(other),
                         passes);
    }
  }
  return std::nullopt;
}

}  // namespace

void drop_poor_linear(const Problem& problem, const DeviceInfo& device, CandidateSpace* space) {
  const auto fallback = fallback_of(problem, device);
  // Those with two slots and more before those with one, and narrow ones before wide ones: what is
  // dropped in favour of another one is compared with those that stay.
  std::vector<Candidate> order = space->kept;
  std::stable_sort(order.begin(), order.end(), [](const Candidate& a, const Candidate& b) {
    return std::make_pair(a.config.num_stages == 1, a.config.block_n) <
           std::make_pair(b.config.num_stages == 1, b.config.block_n);
  });
  std::vector<KernelConfig> tried;
  std::map<Candidate, std::string> dropped;
  for (const Candidate& one : order) {
    auto reason = reason_alone(problem, device, one.config);
    if (!reason) reason = reason_beside(problem, device, one.config, tried);
    if (!reason) tried.push_back(one.config);
    if (reason && one.config != fallback) dropped.emplace(one, *std::move(reason));
  }
  std::erase_if(space->kept, [&](const Candidate& one) {
    const auto found = dropped.find(one);
    if (found == dropped.end()) return false;
    space->pruned.push_back({one, {RejectReason::kUnsupported, found->second}});
    return true;
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
