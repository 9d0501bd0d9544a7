// The contract of a launch's arguments, and their translation to kernel parameters.
#pragma once

#include "runtime/attune.h"
#include "templates/launch_plan.h"

namespace attune {

// The problem of one launch: the prepared one with the arguments' seqlen_q.
Problem launched_problem(const Problem& prepared, const AttentionArgs& args);

// Throws InvalidArgument that names the first argument that breaks the contract, its value and what
// is allowed.
void check_arguments(const Problem& problem, const LaunchPlan& plan, const AttentionArgs& args);

// The parameters of a launch whose arguments were checked.
AttentionParams attention_params(const Problem& problem, const LaunchPlan& plan,
                                 const AttentionArgs& args);

}  // namespace attune
