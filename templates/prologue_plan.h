// Launches of prologue.cuh and state.cuh, and the weights that the first takes: pure arithmetic.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "templates/family.h"
#include "templates/launch_plan.h"
#include "templates/params.h"

namespace attune {

// What of its limits the prologue's template refuses, if anything.
std::optional<Unsupported> prologue_limits(int head_dim, KvLayout layout);

// The launch for these counts of rows; pointers and strides do not matter yet. Throws
// InvalidArgument where the template or the grid does not admit the counts.
KernelLaunch plan_prologue(int head_dim, KvLayout layout, const PrologueParams& params);

KernelLaunch plan_state();

// PrologueParams::q_weight of a unified layout, from the norm weights [kUnifiedHeadDim] of q and k:
// their product, rounded to float, where K's dimension is stored as V alone.
std::vector<float> fold_unified_weights(std::span<const float> q_weight,
                                        std::span<const float> k_weight);

}  // namespace attune
