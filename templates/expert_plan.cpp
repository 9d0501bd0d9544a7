#include "templates/expert_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/error.h"

namespace attune {
namespace {

int ceil_div(int a, int b) { return (a + b - 1) / b; }

// Into how many tiles an expert's outputs are cut: those that leave the busiest CTA the least.
int num_tiles(int outputs, int most, int num_sms, int num_entries) {
  const int fewest = ceil_div(outputs, most);
  const auto outputs_of_busiest = [&](int tiles) {
    return ceil_div(num_entries * tiles, num_sms) * ceil_div(outputs, tiles);
  };
  int best = fewest;
  for (int tiles = fewest; tiles <= std::min(2 * fewest, outputs); ++tiles) {
    if (outputs_of_busiest(tiles) < outputs_of_busiest(best)) best = tiles;
  }
  return best;
}

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

KernelLaunch plan_route(int num_tokens) {
  KernelLaunch launch;
  launch.grid = {static_cast<unsigned>(num_expert_groups(num_tokens)), 1, 1};
  launch.block = {kRouteThreads, 1, 1};
  launch.programmatic = true;
  return launch;
}

LinearPlan plan_experts(const LinearShape& shape, const KernelConfig& config, int num_sms,
                        int num_entries) {
  LinearPlan plan = plan_linear(shape, config, num_sms);
  const int most = config.block_n / linear_rows_per_output(shape.epilogue);
  plan.num_passes = num_tiles(shape.out_features, most, num_sms, num_entries);
  plan.outputs_per_pass = ceil_div(shape.out_features, plan.num_passes);
  plan.launch.grid = {static_cast<unsigned>(num_sms), 1, 1};
  plan.launch.smem_bytes = experts_smem_bytes(config, shape.weights);
  return plan;
}

}  // namespace attune
