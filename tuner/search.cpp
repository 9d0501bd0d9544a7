#include "tuner/search.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/text.h"
#include "tuner/cost_model.h"

namespace attune {
namespace {

std::string digest_of_candidates(std::vector<Candidate> candidates) {
  std::sort(candidates.begin(), candidates.end());
  std::string all;
  for (const Candidate& one : candidates) all += one.text() + "\n";
  return digest_of(all).text();
}

// Moves what comes behind the first `count` to the pruned ones, but for the default.
void leave_out(std::size_t count, Effort effort, const Candidate& default_candidate,
               CandidateSpace* space) {
  std::vector<Candidate> kept;
  for (std::size_t i = 0; i < space->kept.size(); ++i) {
    const Candidate& candidate = space->kept[i];
    if (i < count || candidate == default_candidate) {
      kept.push_back(candidate);
      continue;
    }
    space->pruned.push_back(
        {candidate,
         {RejectReason::kSlow, fmt::format("rank={} of {} by the cost model: effort {} tries {}",
                                           i + 1, space->kept.size(), name_of(effort), count)}});
  }
  space->kept = std::move(kept);
}

}  // namespace

SearchPlan plan_search(const Problem& problem, const DeviceInfo& device, Effort effort,
                       std::span<const std::string> disabled) {
  SearchPlan plan;
  plan.space = candidate_space(problem, device, disabled);
  auto& kept = plan.space.kept;
  if (kept.empty()) return plan;
  plan.default_candidate = default_candidate(problem, device, disabled);
  const EffortPlan effort_plan = plan_of(effort);
  const auto share =
      static_cast<std::size_t>(std::ceil(effort_plan.share * static_cast<double>(kept.size())));
  const std::size_t count = std::max(effort_plan.least_candidates, share);
  if (count < kept.size()) {
    kept = ranked(problem, kept, device);
    leave_out(count, effort, plan.default_candidate, &plan.space);
  }
  std::sort(kept.begin(), kept.end());
  if (disabled.empty()) plan.digest = digest_of_candidates(kept);
  return plan;
}

}  // namespace attune
