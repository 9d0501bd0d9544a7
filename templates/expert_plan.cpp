#include "templates/expert_plan.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "common/error.h"

namespace attune {
namespace {

int ceil_div(int a, int b) { return (a + b - 1) / b; }

}  // namespace

int route_chunks(int num_experts, int top_k) {
  if (num_experts < 1 || num_experts > kMaxExperts || top_k < 1 || top_k > kMaxTopK ||
      top_k > num_experts) {
    throw InvalidArgument("cannot plan experts",
                          fmt::format("num_experts={} top_k_experts={}", num_experts, top_k),
                          fmt::format("a layer has at most {} experts, and a token at most {}",
                                      kMaxExperts, kMaxTopK));
  }
  return ceil_div(num_experts, kWarpSize);
}

int num_expert_groups(int num_tokens) { return ceil_div(num_tokens, kMaxLinearTokens); }

int most_expert_entries(int num_tokens, int num_experts, int top_k) {
  return std::min(num_experts, std::min(num_tokens, kMaxLinearTokens) * top_k);
}

std::vector<int> typical_entries(const LinearShape& shape, int num_tokens) {
  if (!shape.is_experts()) return {0};
  const double all = shape.num_experts;
  const auto num_entries =
      static_cast<int>(std::lround(all * (1 - std::pow(1 - shape.top_k / all, num_tokens))));
  const int gaps = std::max(1, num_entries - 1);
  std::vector<int> entries;
  for (int i = 0; i < num_entries; ++i) entries.push_back(i * (shape.num_experts - 1) / gaps);
  return entries;
}

KernelLaunch plan_route(int num_tokens) {
  KernelLaunch launch;
  launch.grid = {static_cast<unsigned>(num_expert_groups(num_tokens)), 1, 1};
  launch.block = {kRouteThreads, 1, 1};
  launch.programmatic = true;
  return launch;
}

}  // namespace attune
