#include "templates/launch_plan.h"

#include <algorithm>
#include <bit>
#include <limits>

#include <fmt/format.h>

#include "common/error.h"
#include "templates/split_plan.h"

namespace attune {
namespace {

constexpr std::size_t kWorkspaceAlignment = 256;

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int num_row_blocks(const Problem& problem, const Candidate& candidate) {
  return (problem.num_rows() + candidate.config.block_m - 1) / candidate.config.block_m;
}

std::optional<Unsupported> limits(const Problem& problem, const Candidate& candidate, bool shares) {
  if (candidate.split_cap < 1 || candidate.split_cap > kMaxTextNumber) {
    return Unsupported{fmt::format("split_cap={} is 1 to {}", candidate.split_cap, kMaxTextNumber)};
  }
  if (problem.is_linear() || known_family(candidate.family).is_persistent) return std::nullopt;
  const std::int64_t cap = problem.invariant ? invariant_split_cap(problem) : candidate.split_cap;
  const std::int64_t slots =
      shares ? std::max<std::int64_t>(cap, problem.batch + 1) : cap * problem.batch;
  const std::int64_t blocks = num_row_blocks(problem, candidate);
  if (slots * blocks <= std::numeric_limits<int>::max()) return std::nullopt;
  return Unsupported{fmt::format("batch={} row_blocks={} split_cap={}: more CTAs than a grid has",
                                 problem.batch, blocks, cap)};
}

}  // namespace

std::optional<Unsupported> launch_limits(const Problem& problem, const Candidate& candidate) {
  return limits(problem, candidate, shares_slots(problem, candidate));
}

int min_ring_capacity(const Problem& problem) {
  return std::max(problem.window + problem.seqlen_q - 1, kMinRingCapacity);
}

int invariant_split_cap(const Problem& problem) {
  const ChunkRule rule = chunk_rule(problem.head_dim, problem.num_kv_heads, problem.window);
  if (problem.window == 0) return chunk_of(rule, problem.kv.max - 1) + 1;
  return (problem.window + problem.seqlen_q - 2) / rule.grain + 2;
}

bool merges_in_cluster(const Family& family, int num_row_blocks, int split_cap) {
  return family.merges_in_clusters && num_row_blocks == 1 && split_cap > 1 &&
         split_cap <= kMaxClusterSplits && std::has_single_bit(static_cast<unsigned>(split_cap));
}

bool shares_slots(const Problem& problem, const Candidate& candidate) {
  const Family& family = known_family(candidate.family);
  return family.splits_keys && !problem.invariant && problem.batch > 1 &&
         candidate.split_cap > problem.batch &&
         !merges_in_cluster(family, num_row_blocks(problem, candidate), candidate.split_cap);
}

LaunchPlan plan_launch(const Problem& problem, const Candidate& candidate) {
  return plan_launch(problem, candidate, shares_slots(problem, candidate));
}

LaunchPlan plan_launch(const Problem& problem, const Candidate& candidate, bool shares) {
  if (const auto limit = limits(problem, candidate, shares)) {
    throw InvalidArgument(
        "cannot plan a launch",
        fmt::format("problem={} candidate={}: {}", problem.text(), candidate.text(), limit->detail),
        "take a smaller batch, or a candidate of fewer splits");
  }
  const KernelConfig& config = candidate.config;
  const Family& family = known_family(candidate.family);
  LaunchPlan plan;
  if (problem.is_linear()) {
    plan.split.block = {static_cast<unsigned>(config.num_warps * kWarpSize), 1, 1};
    plan.split.smem_bytes = family.smem_bytes_of(problem, config);
    plan.split.programmatic = true;
    return plan;
  }
  plan.num_row_blocks = num_row_blocks(problem, candidate);
  const bool clusters = merges_in_cluster(family, plan.num_row_blocks, candidate.split_cap);
  if (problem.invariant) {
    plan.split_cap = invariant_split_cap(problem);  // whatever the candidate says
  } else if (family.is_persistent) {
    plan.split_cap = 1;
  } else if (!shares || clusters || problem.batch == 1) {
    plan.split_cap = candidate.split_cap;
  } else {
    plan.split_cap = 0;
  }
  plan.num_slots = plan.split_cap > 0 ? problem.batch * plan.split_cap
                                      : std::max(candidate.split_cap, problem.batch + 1);
  const auto blocks = static_cast<unsigned>(plan.num_row_blocks);
  const auto kv_heads = static_cast<unsigned>(problem.num_kv_heads);
  const auto batch = static_cast<unsigned>(problem.batch);
  // Row blocks of one split are neighbours: they read the same keys, and the reads of neighbouring
  // CTAs in step are merged on the way to L2.
  plan.split.grid = plan.split_cap > 0
                        ? Dim3{blocks * static_cast<unsigned>(plan.split_cap), kv_heads, batch}
                        : Dim3{blocks * static_cast<unsigned>(plan.num_slots), kv_heads, 1};
  if (family.is_persistent) {
    const auto all = std::uint64_t{blocks} * kv_heads * batch;
    const auto most = static_cast<std::uint64_t>(candidate.split_cap);
    plan.split.grid = {static_cast<unsigned>(std::min(all, most)), 1, 1};
  }
  plan.split.block = {static_cast<unsigned>(config.num_warps * kWarpSize), 1, 1};
  plan.split.smem_bytes = family.smem_bytes(config, problem.head_dim, problem.kv_layout);
  plan.kv_box = family.tensor_box(config, problem.head_dim, problem.kv_layout);
  plan.kv_columns = kv_row_columns(problem.kv_layout, problem.head_dim);
  plan.page_size = problem.page_size;
  plan.unified = is_unified(problem.kv_layout);
  plan.merges_in_cluster = clusters;
  if (clusters) plan.split.cluster = {static_cast<unsigned>(plan.split_cap), 1, 1};
  const bool has_partials = plan.num_slots > problem.batch;
  plan.needs_combine = has_partials && !clusters;
  if (plan.needs_combine) {
    const auto slices = static_cast<unsigned>(problem.head_dim / combine_columns(problem.head_dim));
    const auto rows = static_cast<unsigned>(problem.num_rows());
    plan.combine.grid = {shares ? rows : slices * rows, kv_heads, batch};
    plan.combine.block = {kCombineThreads, 1, 1};
    plan.combine.programmatic = true;
  }
  if (has_partials) {
    const auto partial_rows = static_cast<std::size_t>(num_partial_rows(
        problem.num_kv_heads, plan.num_row_blocks, plan.num_slots, config.block_m));
    const std::size_t plans =
        plan.split_cap == 0 ? std::size_t{1} * plan.num_row_blocks * batch : 0;
    const bool packed = family.packs_partials;
    plan.o_partial_bytes = round_up(partial_rows * problem.head_dim * partial_element_bytes(packed),
                                    kWorkspaceAlignment);
    plan.lse_partial_bytes =
        round_up(partial_rows * sizeof(float) * partial_stats(packed) + plans * sizeof(SharedPlan),
                 kWorkspaceAlignment);
  }
  return plan;
}

void set_plan_params(const Problem& problem, const LaunchPlan& plan, std::uint64_t workspace,
                     AttentionParams* params) {
  params->o_partial = reinterpret_cast<void*>(workspace);
  params->lse_partial = reinterpret_cast<float*>(workspace + plan.o_partial_bytes);
  params->batch = problem.batch;
  params->seqlen_q = problem.seqlen_q;
  params->num_kv_heads = problem.num_kv_heads;
  params->group_size = problem.group_size();
  params->num_row_blocks = plan.num_row_blocks;
  params->num_slots = plan.num_slots;
  params->split_cap = plan.split_cap;
  params->merges_in_cluster = plan.merges_in_cluster ? 1 : 0;
  params->window = problem.window;
  params->causal = problem.causal ? 1 : 0;
  params->page_shift = problem.page_size > 0 ? std::countr_zero(unsigned(problem.page_size)) : 0;
}

}  // namespace attune
