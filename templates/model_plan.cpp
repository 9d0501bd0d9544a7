#include "templates/model_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/error.h"
#include "templates/model_config.h"

namespace attune {
namespace {

// Rows of W that make a CTA worth starting.
constexpr int kLeastOutputs = 8;

}  // namespace

std::size_t linear_weight_bytes(const LinearShape& shape) {
  if (shape.weights == LinearWeights::kInt4) {
    return static_cast<std::size_t>(int4_bytes(shape.weight_rows(), shape.in_features));
  }
  return std::size_t{kBytesPerElement} * static_cast<std::size_t>(shape.weight_rows()) *
         static_cast<std::size_t>(shape.in_features);
}

std::optional<KernelConfig> default_linear_config(int tokens, LinearWeights weights,
                                                  int max_smem_bytes) {
  // More have not been faster on an H200, of packed rows slower.
  const int most_stages = weights == LinearWeights::kInt4 ? 2 : 3;
  KernelConfig config{
      .block_m = tokens, .block_n = 16, .num_stages = 1, .num_warps = linear_warps(weights)};
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

std::optional<KernelConfig> default_linear_config(const LinearShape& shape, int tokens,
                                                  int max_smem_bytes, int num_sms) {
  auto best = default_linear_config(tokens, shape.weights, max_smem_bytes);
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
        linear_smem_bytes(config, shape.weights) > max_smem_bytes) {
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

LinearPlan plan_linear(const LinearShape& shape, const KernelConfig& config, int num_sms) {
  if (const auto limit = linear_limits(shape, config)) {
    throw InvalidArgument("cannot plan a linear layer", limit->detail);
  }
  const int most = config.block_n / linear_rows_per_output(shape.epilogue);
  const int num_ctas = std::clamp(shape.out_features / kLeastOutputs, 1, num_sms);
  const int outputs = (shape.out_features + num_ctas - 1) / num_ctas;  // of the largest share
  LinearPlan plan;
  plan.num_passes = (outputs + most - 1) / most;
  plan.outputs_per_pass = (outputs + plan.num_passes - 1) / plan.num_passes;
  plan.launch.grid = {static_cast<unsigned>(num_ctas), 1, 1};
  plan.launch.block = {static_cast<unsigned>(config.num_warps * kWarpSize), 1, 1};
  plan.launch.smem_bytes = linear_smem_bytes(config, shape.weights);
  plan.launch.programmatic = true;
  return plan;
}

int residual_chunks(int hidden) {
  const int chunks = (hidden + kResidualColumns - 1) / kResidualColumns;
  if (hidden < 8 || hidden % 8 != 0 || chunks > kMaxResidualChunks) {
    throw InvalidArgument(
        "cannot plan a step of the residual stream", fmt::format("hidden={}", hidden),
        fmt::format("it is a multiple of 8, at most {}", kMaxResidualChunks * kResidualColumns));
  }
  return chunks;
}

KernelLaunch plan_residual(int num_tokens) {
  KernelLaunch launch;
  launch.grid = {static_cast<unsigned>(num_tokens), 1, 1};
  launch.block = {kResidualThreads, 1, 1};
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
