#include "templates/model_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/error.h"
#include "templates/expert_params.h"
#include "templates/model_config.h"

namespace attune {
namespace {

// Rows of W that make a CTA worth starting.
constexpr int kLeastOutputs = 8;

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

// The most rows of a slot with which two slots of every warp find room.
std::optional<KernelConfig> config_with_room(int block_m, LinearWeights weights,
                                             int max_smem_bytes) {
  // More have not been faster on an H200, of packed rows slower.
  const int most_stages = weights == LinearWeights::kInt4 ? 2 : 3;
  KernelConfig config{
      .block_m = block_m, .block_n = 16, .num_stages = 1, .num_warps = linear_warps(weights)};
  for (const int block_n : {48, 32, 16}) {
    config.block_n = block_n;
    for (config.num_stages = most_stages; config.num_stages >= 2; --config.num_stages) {
      if (linear_smem_bytes(config, weights) <= max_smem_bytes) return config;
    }
  }
  config.num_stages = 1;
  if (linear_smem_bytes(config, weights) <= max_smem_bytes) return config;
  return std::nullopt;
}

}  // namespace

std::size_t linear_weight_bytes(const LinearShape& shape) {
  if (shape.weights == LinearWeights::kInt4) {
    return static_cast<std::size_t>(int4_bytes(shape.all_weight_rows(), shape.in_features));
  }
  return std::size_t{kBytesPerElement} * static_cast<std::size_t>(shape.all_weight_rows()) *
         static_cast<std::size_t>(shape.in_features);
}

std::optional<KernelConfig> default_linear_config(const LinearShape& shape, int tokens,
                                                  int max_smem_bytes, int num_sms) {
  const int room = max_smem_bytes - (shape.is_experts() ? kExpertListBytes : 0);
  auto best = config_with_room(linear_token_block(tokens, shape.weights), shape.weights, room);
  if (!best || shape.weights == LinearWeights::kBf16) return best;
  // Packed rows are the cores' work as well. A slot costs an H200 as much as two tiles of 16 rows, and
  // its tiles (bench/results/h200-2026-11-30-model-2).
  const auto work = [&](const KernelConfig& config) {
    constexpr int kSlotTiles = 2;
    const LinearPlan plan = plan_linear(shape, config, num_sms);
    return plan.num_passes * (kSlotTiles + config.block_n / kMmaRows);
  };
  for (const int block_n : {64, 32, 16}) {
    KernelConfig config = *best;
    config.block_n = block_n;
    if (config.num_stages < 2 || linear_limits(shape, config) ||
        linear_smem_bytes(shape, config) > max_smem_bytes) {
      continue;
    }
    if (work(config) < work(*best)) best = config;
  }
  return best;
}

std::optional<Unsupported> linear_limits(const LinearShape& shape, const KernelConfig& config) {
  if (!is_linear_token_block(config.block_m, shape.weights)) {
    return Unsupported{
        fmt::format("block_m={} is neither 8 nor 16, nor 1 with packed rows", config.block_m)};
  }
  // Rows of a box at most.
  constexpr int kMostRows = 256;
  if (config.block_n < kMmaRows || config.block_n % kMmaRows != 0 || config.block_n > kMostRows) {
    return Unsupported{fmt::format("block_n={} is no multiple of {} up to {}", config.block_n,
                                   kMmaRows, kMostRows)};
  }
  const int num_warps = linear_warps(shape.weights);
  if (config.num_warps != num_warps || config.num_stages < 1 ||
      config.num_stages > kMaxConfigField) {
    return Unsupported{fmt::format("num_warps={} num_stages={}: warps are {}, stages 1 to {}",
                                   config.num_warps, config.num_stages, num_warps,
                                   kMaxConfigField)};
  }
  if (shape.out_features < 1 || shape.in_features < 8 || shape.in_features % 8 != 0) {
    return Unsupported{fmt::format("out_features={} in_features={}: at least 1, a multiple of 8",
                                   shape.out_features, shape.in_features)};
  }
  return std::nullopt;
}

int linear_smem_bytes(const LinearShape& shape, const KernelConfig& config) {
  return shape.is_experts() ? experts_smem_bytes(config, shape.weights)
                            : linear_smem_bytes(config, shape.weights);
}

LinearPlan plan_linear(const LinearShape& shape, const KernelConfig& config, int num_sms) {
  if (const auto limit = linear_limits(shape, config)) {
    throw InvalidArgument("cannot plan a linear layer", limit->detail);
  }
  const int most = config.block_n / linear_rows_per_output(shape.epilogue);
  LinearPlan plan;
  int num_ctas = num_sms;
  int outputs = shape.out_features;  // that passes have to cover: of an expert, or of a CTA
  if (shape.is_experts()) {
    plan.num_passes = num_tiles(outputs, most, num_sms, shape.top_k);
  } else {
    num_ctas = std::clamp(shape.out_features / kLeastOutputs, 1, num_sms);
    outputs = ceil_div(shape.out_features, num_ctas);  // of the largest share
    plan.num_passes = ceil_div(outputs, most);
  }
  plan.outputs_per_pass = ceil_div(outputs, plan.num_passes);
  plan.launch.grid = {static_cast<unsigned>(num_ctas), 1, 1};
  plan.launch.block = {static_cast<unsigned>(config.num_warps * kWarpSize), 1, 1};
  plan.launch.smem_bytes = linear_smem_bytes(shape, config);
  plan.launch.programmatic = true;
  return plan;
}

int residual_threads(int hidden) {
  if (hidden < kResidualColumns || hidden % kResidualColumns != 0 ||
      hidden > kMaxResidualThreads * kResidualColumns) {
    throw InvalidArgument("cannot plan a step of the residual stream",
                          fmt::format("hidden={}", hidden),
                          fmt::format("it is a multiple of {}, at most {}", kResidualColumns,
                                      kMaxResidualThreads * kResidualColumns));
  }
  return ceil_div(hidden, kResidualColumns * kWarpSize) * kWarpSize;
}

KernelLaunch plan_residual(int hidden, int num_tokens) {
  KernelLaunch launch;
  launch.grid = {static_cast<unsigned>(num_tokens), 1, 1};
  launch.block = {static_cast<unsigned>(residual_threads(hidden)), 1, 1};
  launch.programmatic = true;
  return launch;
}

KernelLaunch plan_argmax(int num_rows) {
  KernelLaunch launch;
  launch.grid = {static_cast<unsigned>(num_rows), 1, 1};
  launch.block = {kArgmaxThreads, 1, 1};
  launch.programmatic = true;
  return launch;
}

KernelLaunch plan_gate(int num_tokens, int width) {
  KernelLaunch launch;
  launch.grid = {static_cast<unsigned>(num_tokens),
                 static_cast<unsigned>((width + kGateColumns - 1) / kGateColumns), 1};
  launch.block = {kGateThreads, 1, 1};
  launch.programmatic = true;
  return launch;
}

int per_layer_chunks(int width) {
  const int chunks = (width + kPerLayerColumns - 1) / kPerLayerColumns;
  if (width < 8 || width % 8 != 0 || chunks > kMaxPerLayerChunks) {
    throw InvalidArgument(
        "cannot plan per-layer inputs", fmt::format("hidden_size_per_layer_input={}", width),
        fmt::format("it is a multiple of 8, at most {}", kMaxPerLayerChunks * kPerLayerColumns));
  }
  return chunks;
}

KernelLaunch plan_per_layer_inputs(int num_layers, int num_tokens) {
  KernelLaunch launch;
  launch.grid = {static_cast<unsigned>(num_tokens),
                 static_cast<unsigned>((num_layers + kPerLayerWarps - 1) / kPerLayerWarps), 1};
  launch.block = {kPerLayerWarps * kWarpSize, 1, 1};
  launch.programmatic = true;
  return launch;
}

KernelLaunch plan_dequantize(int num_rows, int in_features) {
  if (num_rows > kMostDequantizedRows) {
    throw InvalidArgument("cannot plan to unpack a layer", fmt::format("num_rows={}", num_rows),
                          fmt::format("it has at most {}", kMostDequantizedRows));
  }
  KernelLaunch launch;
  launch.grid = {static_cast<unsigned>(linear_panels(LinearWeights::kInt4, in_features)),
                 static_cast<unsigned>((num_rows + kDequantizeRows - 1) / kDequantizeRows), 1};
  launch.block = {kDequantizeWarps * kWarpSize, 1, 1};
  launch.programmatic = true;
  return launch;
}

KernelLaunch plan_per_layer_gate(int num_tokens) {
  KernelLaunch launch;
  launch.grid = {static_cast<unsigned>(num_tokens), 1, 1};
  launch.block = {kWarpSize, 1, 1};
  launch.programmatic = true;
  return launch;
}

}  // namespace attune
