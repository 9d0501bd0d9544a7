// Launches of route.cuh and expert_steps.cuh, and the experts of a group: pure arithmetic.
#pragma once

#include <vector>

#include "templates/expert_params.h"
#include "templates/model_plan.h"

namespace attune {

// What their kernels share: experts of a lane of route.cuh. Throws InvalidArgument where the numbers are
// outside of what it admits.
int route_chunks(int num_experts, int top_k);

// Groups of num_tokens, and entries that one may have.
int num_expert_groups(int num_tokens);
int most_expert_entries(int num_tokens, int num_experts, int top_k);

// The experts of a group whose tokens choose top_k of all, each alike and whatever the others chose: as many
// as that is on average, from the first to the last in equal steps. A layer that is not one of experts has
// one entry, 0.
std::vector<int> typical_entries(const LinearShape& shape, int num_tokens);

KernelLaunch plan_route(int num_tokens);

}  // namespace attune
