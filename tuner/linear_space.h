// Which configs of a linear layer are worth a try, and their order without a measurement.
#pragma once

#include "tuner/space.h"

namespace attune {

// Moves what a look at the numbers rules out to the pruned ones: slots for little, rows that no CTA
// has outputs for, one slot a warp where two find room. The default stays.
void drop_poor_linear(const Problem& problem, const DeviceInfo& device, CandidateSpace* space);

// Of a space that is not empty: it holds it.
Candidate default_linear_candidate(const Problem& problem, const DeviceInfo& device);

// The best guess first: copies under way beside the work, few passes, much under way.
std::vector<Candidate> ranked_linear(const Problem& problem,
                                     const std::vector<Candidate>& candidates,
                                     const DeviceInfo& device);

}  // namespace attune
