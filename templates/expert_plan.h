// Launches of route.cuh, experts.cuh and expert_steps.cuh: pure arithmetic.
#pragma once

#include "templates/expert_params.h"
#include "templates/model_plan.h"

namespace attune {

// What their kernels share: experts of a lane of route.cuh. Throws InvalidArgument where the numbers are
// outside of what it admits.
int route_chunks(int num_experts, int top_k);

// Groups of num_tokens, and entries that one may have.
int num_expert_groups(int num_tokens);
int most_expert_entries(int num_tokens, int num_experts, int top_k);

KernelLaunch plan_route(int num_tokens);

// `shape` is one expert's layer; tiles are of a size that keeps `num_entries` of them busy on all SMs.
// Throws InvalidArgument where linear_limits refuses.
LinearPlan plan_experts(const LinearShape& shape, const KernelConfig& config, int num_sms,
                        int num_entries);

}  // namespace attune
