#include "templates/family.h"

#include <array>

#include <fmt/format.h>

#include "common/error.h"
#include "templates/family_limits.h"
#include "templates/model_plan.h"
#include "templates/split_plan.h"
#include "templates/wgrows_config.h"

namespace attune {
namespace {

int streams_of_grid(const KernelConfig& config, int head_dim) {
  return stream_grid(config, head_dim).streams;
}
int stream_a_warp(const KernelConfig& config, int) { return config.num_warps; }
TensorBox no_tensor_box(const KernelConfig&, int, KvLayout) { return {}; }
// A whole tile.
TensorBox tile_box(const KernelConfig& config, int head_dim, KvLayout layout) {
  return {config.block_n, kv_row_columns(layout, head_dim) / 64};
}

// What arrives and is freed together.
TensorBox wgmma_tensor_box(const KernelConfig& config, int, KvLayout layout) {
  return {config.block_n, wgmma_box_panels(layout)};
}

constexpr std::array kFamilies = {
    Family{.name = "splitkv",
           .entry_file = "templates/splitkv.cuh",
           .entry_function = "attune::splitkv",
           .min_compute_capability = 80,
           .splits_keys = true,
           .counts_ctas = true,
           .smem_bytes = splitkv_smem_bytes,
           .template_limits = splitkv_limits,
           .is_worth_trying = tries_tile,
           .tensor_box = no_tensor_box},
    Family{.name = "tiled",
           .entry_file = "templates/tiled.cuh",
           .entry_function = "attune::tiled",
           .min_compute_capability = 80,
           .splits_keys = false,
           .smem_bytes = tiled_smem_bytes,
           .template_limits = tiled_limits,
           .is_worth_trying = tries_tile,
           .tensor_box = no_tensor_box},
    Family{.name = "slices",
           .entry_file = "templates/slices.cuh",
           .entry_function = "attune::slices",
           .min_compute_capability = 80,
           .splits_keys = false,
           .has_slices = true,
           .smem_bytes = slices_smem_bytes,
           .template_limits = slices_limits,
           .is_worth_trying = tries_slices,
           .tensor_box = no_tensor_box},
    Family{.name = "swapab",
           .entry_file = "templates/swapab.cuh",
           .entry_function = "attune::swapab",
           .min_compute_capability = 90,
           .splits_keys = true,
           .most_rows = 32,
           .first_choice_from = 1,
           .first_choice_to = 16,
           .short_choice_from = 17,
           .short_choice_to = 32,
           .merges_in_clusters = true,
           .num_streams = streams_of_grid,
           .smem_bytes = swapab_smem_bytes,
           .template_limits = swapab_limits,
           .is_worth_trying = tries_stream,
           .tensor_box = tile_box},
    Family{.name = "oneround",
           .entry_file = "templates/oneround.cuh",
           .entry_function = "attune::oneround",
           .min_compute_capability = 90,
           .splits_keys = true,
           .most_rows = 16,
           .short_choice_from = 1,
           .short_choice_to = 16,
           .merges_in_clusters = true,
           .fills_sm = true,
           .num_streams = stream_a_warp,
           .smem_bytes = oneround_smem_bytes,
           .template_limits = oneround_limits,
           .is_worth_trying = tries_round,
           .tensor_box = tile_box},
    Family{.name = "wgmma",
           .entry_file = "templates/wgmma.cuh",
           .entry_function = "attune::wgmma",
           .min_compute_capability = 90,
           .only_arch = "sm_90a",
           .splits_keys = true,
           .prefills = true,
           .least_rows = 17,
           .most_rows = kMostTokenRows,
           .first_choice_from = 17,
           .alone_from = 33,
           .packs_partials = true,
           .smem_bytes = wgmma_smem_bytes,
           .template_limits = wgmma_limits,
           .is_worth_trying = tries_tile,
           .tensor_box = wgmma_tensor_box},
    Family{.name = "wgrows",
           .entry_file = "templates/wgrows.cuh",
           .entry_function = "attune::wgrows",
           .min_compute_capability = 90,
           .only_arch = "sm_90a",
           .splits_keys = false,
           .prefills = true,
           .is_persistent = true,
           .smem_bytes = wgrows_smem_bytes,
           .template_limits = wgrows_limits,
           .is_worth_trying = tries_wgrows,
           .tensor_box = tile_box},
    Family{.name = kLinearFamily,
           .entry_file = "templates/linear.cuh",
           .entry_function = "attune::linear",
           .min_compute_capability = 90,
           .splits_keys = false},
    Family{.name = kExpertsFamily,
           .entry_file = "templates/experts.cuh",
           .entry_function = "attune::experts",
           .min_compute_capability = 90,
           .splits_keys = false},
};
constexpr std::size_t kNumLinearFamilies = 2;  // the last ones: linear layers, experts

// Packed rows of an invariant prefill: its partial results take a row of every chunk.
constexpr int kMaxInvariantRows = 512;

// Every number of rows and stages with which some device reads at its full rate.
std::vector<KernelConfig> linear_configs(int tokens, LinearWeights weights) {
  std::vector<KernelConfig> all;
  for (const int block_n : {16, 32, 48, 64, 80, 96, 128}) {
    for (int num_stages = 1; num_stages <= 8; ++num_stages) {
      all.push_back(
          {linear_token_block(tokens, weights), block_n, num_stages, linear_warps(weights)});
    }
  }
  return all;
}

std::optional<Unsupported> linear_problem_limits(const Problem& problem,
                                                 const KernelConfig& config) {
  if (config.block_m != linear_token_block(problem.linear_tokens, problem.linear.weights)) {
    return Unsupported{fmt::format("block_m={}: the layer is one of up to {} tokens",
                                   config.block_m, problem.linear_tokens)};
  }
  return linear_limits(problem.linear, config);
}

}  // namespace

std::vector<KernelConfig> Family::configs(const Problem& problem) const {
  return is_linear() ? linear_configs(problem.linear_tokens, problem.linear.weights)
                     : configs(problem.head_dim, problem.kv_layout);
}

int Family::smem_bytes_of(const Problem& problem, const KernelConfig& config) const {
  return is_linear() ? linear_smem_bytes(problem.linear, config)
                     : smem_bytes(config, problem.head_dim, problem.kv_layout);
}

std::vector<KernelConfig> Family::configs(int head_dim, KvLayout layout) const {
  std::vector<KernelConfig> all;
  for (const int block_m : {8, 16, 32, 64, 128}) {
    for (const int block_n : {16, 32, 64, 128}) {
      for (const int num_stages : {1, 2, 3, 4}) {
        for (const int num_warps : {2, 4, 8, 12, 16}) {
          const KernelConfig config{block_m, block_n, num_stages, num_warps};
          if (!static_limits(config, head_dim, layout) &&
              is_worth_trying(config, head_dim, layout)) {
            all.push_back(config);
          }
        }
      }
    }
  }
  return all;
}

std::optional<Unsupported> Family::static_limits(const KernelConfig& config, int head_dim,
                                                 KvLayout layout) const {
  for (const int field : {config.block_m, config.block_n, config.num_stages, config.num_warps}) {
    if (field < 1 || field > kMaxConfigField) {
      return Unsupported{
          fmt::format("{}: every number is 1 to {}", text_of(config), kMaxConfigField)};
    }
  }
  if (config.block_m > config.num_warps * kWarpSize) {
    return Unsupported{fmt::format("block_m={} is above the {} threads that describe its rows",
                                   config.block_m, config.num_warps * kWarpSize)};
  }
  if (config.block_n > kMinRingCapacity) {
    return Unsupported{fmt::format("block_n={} is above the shortest ring, {} rows", config.block_n,
                                   kMinRingCapacity)};
  }
  if (is_unified(layout) && head_dim != kUnifiedHeadDim) {
    return Unsupported{
        fmt::format("head_dim={}: unified rows are defined for {}", head_dim, kUnifiedHeadDim)};
  }
  return template_limits(config, head_dim, layout);
}

std::optional<Unsupported> Family::supports(const Problem& problem,
                                            const KernelConfig& config) const {
  const bool is_of_experts = name == kExpertsFamily;
  if (is_linear() != problem.is_linear() || is_of_experts != problem.linear.is_experts()) {
    return Unsupported{fmt::format("op={}: {} is a family of {}", name_of(problem.op), name,
                                   is_of_experts ? "experts"
                                   : is_linear() ? "linear layers"
                                                 : "attention")};
  }
  if (is_linear()) return linear_problem_limits(problem, config);
  if (!splits_keys && problem.op != Op::kPrefill) {
    return Unsupported{fmt::format("{} has no use for the CTAs that few rows leave idle", name)};
  }
  if (problem.invariant && !splits_keys) {
    return Unsupported{fmt::format("{} sums a row's keys up in one go, not in chunks", name)};
  }
  if (problem.invariant && tensor_box(config, problem.head_dim, problem.kv_layout).rows > 0) {
    return Unsupported{fmt::format("the sums of {} depend on its config", name)};
  }
  if (problem.window > 0 && is_paged(problem.kv_layout) &&
      tensor_box(config, problem.head_dim, problem.kv_layout).rows > 0) {
    return Unsupported{
        fmt::format("window={}: its tiles would begin inside of pages and end in "
                    "others",
                    problem.window)};
  }
  const int box_rows = tensor_box(config, problem.head_dim, problem.kv_layout).rows;
  if (is_paged(problem.kv_layout) && box_rows > problem.page_size) {
    return Unsupported{fmt::format("block_n={}: a tile is one box and lies in one page of {} rows",
                                   box_rows, problem.page_size)};
  }
  const bool is_prefill = problem.op == Op::kPrefill;
  const int fewest_rows = is_prefill && prefills ? 1 : least_rows;
  const bool has_op = box_rows == 0 || prefills || !is_prefill;
  if (box_rows > 0 &&
      (!has_op || problem.num_rows() < fewest_rows || problem.num_rows() > most_rows)) {
    return Unsupported{fmt::format("rows={}: {} is made for {} of {} to {}", problem.num_rows(),
                                   name, has_op && is_prefill ? "prefills" : "steps", fewest_rows,
                                   most_rows)};
  }
  if (problem.invariant && config.block_n != invariant_block_n(problem.head_dim)) {
    return Unsupported{fmt::format("block_n={}: an invariant row is summed up in tiles of {}",
                                   config.block_n, invariant_block_n(problem.head_dim))};
  }
  if (problem.invariant && problem.num_rows() > kMaxInvariantRows) {
    return Unsupported{fmt::format("rows={}: invariant partial results take at most {} rows",
                                   problem.num_rows(), kMaxInvariantRows)};
  }
  return static_limits(config, problem.head_dim, problem.kv_layout);
}

std::span<const Family> families() { return kFamilies; }

std::span<const Family> families_of(Op op) {
  const std::span<const Family> all = kFamilies;
  const auto of_linear = all.last(kNumLinearFamilies);
  if (op == Op::kLinear) return of_linear.first(1);
  if (op == Op::kExperts) return of_linear.last(1);
  return all.first(all.size() - kNumLinearFamilies);
}

const Family* find_family(std::string_view name) {
  for (const Family& family : kFamilies) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

const Family& known_family(std::string_view name) {
  if (const Family* family = find_family(name)) return *family;
  std::string known;
  for (const Family& family : kFamilies) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.name);
  }
  throw InvalidArgument("unknown kernel family", fmt::format("'{}'", name),
                        fmt::format("the families are {}", known));
}

}  // namespace attune
