// Which candidates of a problem a tune of some effort compiles, verifies and times.
#pragma once

#include <span>
#include <string>

#include "tuner/effort.h"
#include "tuner/space.h"

namespace attune {

struct SearchPlan {
  CandidateSpace space;         // what the effort leaves out is among the pruned
  Candidate default_candidate;  // one of space.kept
  // Of space.kept: a winner that was chosen from others is chosen again. Empty where families are
  // off, whose candidates would count without that.
  std::string digest;
};

// Of the ranked candidates those that the effort has time for, and the default. The kept ones are
// empty when the space is.
SearchPlan plan_search(const Problem& problem, const DeviceInfo& device, Effort effort,
                       std::span<const std::string> disabled = {});

}  // namespace attune
