#include "runtime/linear_layers.h"

#include <algorithm>

#include <fmt/format.h>

#include "jit/model_source.h"

namespace attune {
namespace {

// Rows of a slot: one pass for the 41 rows that an H200's CTA has of 5376.
constexpr int kBlockN = 48;
constexpr int kMostStages = 4;

// As many slots as an SM's shared memory holds.
KernelConfig config_for(int block_m, LinearWeights weights, const DeviceInfo& device) {
  KernelConfig config{
      .block_m = block_m, .block_n = kBlockN, .num_stages = kMostStages, .num_warps = kLinearWarps};
  while (config.num_stages > 1 &&
         linear_smem_bytes(config, weights) > device.max_smem_per_block_bytes) {
    --config.num_stages;
  }
  return config;
}

}  // namespace

LinearLayers::LinearLayers(Device& device, const Load& load,
                           std::span<const LinearEpilogue> epilogues, LinearWeights weights)
    : device_(device), weights_(weights) {
  for (const LinearEpilogue epilogue : epilogues) {
    for (const int block_m : {kMmaTokens, kMaxLinearTokens}) {
      Loaded& loaded = kernels_[{epilogue, block_m}];
      const KernelConfig config = config_for(block_m, weights_, device.info());
      const Source source = linear_source(config, epilogue, weights_);
      loaded.module = load(source);
      loaded.linear.config = config;
      loaded.linear.kernel = device.kernel(loaded.module->module, source.symbols.front(),
                                           linear_smem_bytes(config, weights_));
    }
  }
}

void LinearLayers::run(LinearShape shape, LinearArgs args, StreamHandle stream) const {
  shape.weights = weights_;
  const int out_bytes = shape.epilogue == LinearEpilogue::kLogits ? 4 : kBytesPerElement;
  for (int left = args.num_tokens; left > 0; left -= args.num_tokens) {
    args.num_tokens = std::min(left, kMaxLinearTokens);
    const int block_m = args.num_tokens <= kMmaTokens ? kMmaTokens : kMaxLinearTokens;
    LinearKernel linear = kernels_.at({shape.epilogue, block_m}).linear;
    linear.shape = shape;
    linear.plan = plan_linear(shape, linear.config, device_.info().num_sms);
    launch_linear(device_, linear, args, stream);
    args.input += std::uint64_t{1} * args.num_tokens * shape.in_features * kBytesPerElement;
    args.out += std::uint64_t{1} * args.num_tokens * shape.out_features * out_bytes;
  }
}

}  // namespace attune
