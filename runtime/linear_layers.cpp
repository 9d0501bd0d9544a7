#include "runtime/linear_layers.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/host/host_target.h"
#include "jit/model_source.h"

namespace attune {
namespace {

// The most rows of a slot, so that a CTA needs few passes (one for the 41 rows that an H200's CTA has of
// 5376), with which two slots of every warp find room: one is multiplied while the other is filled.
KernelConfig config_for(int block_m, LinearWeights weights, const DeviceInfo& device) {
  // More have not been faster on an H200, of packed rows slower: more is to come before the first x.
  const int most_stages = weights == LinearWeights::kInt4 ? 2 : 3;
  KernelConfig config{
      .block_m = block_m, .block_n = 48, .num_stages = 1, .num_warps = linear_warps(weights)};
  for (const int block_n : {48, 32, 16}) {
    config.block_n = block_n;
    for (config.num_stages = most_stages; config.num_stages >= 2; --config.num_stages) {
      if (linear_smem_bytes(config, weights) <= device.max_smem_per_block_bytes) return config;
    }
  }
  config.num_stages = 1;
  if (linear_smem_bytes(config, weights) <= device.max_smem_per_block_bytes) return config;
  throw DeviceUnavailable(
      "this GPU cannot run linear layers",
      fmt::format("gpu={} smem_bytes={} limit={}", device.name, linear_smem_bytes(config, weights),
                  device.max_smem_per_block_bytes),
      "use bf16 weights, or a GPU with more shared memory");
}

// BLOCK_M of the kernels, ascending. One token's x takes so little room that packed rows have slots more.
std::vector<int> token_blocks(LinearWeights weights) {
  if (weights == LinearWeights::kInt4) return {1, kMmaTokens, kMaxLinearTokens};
  return {kMmaTokens, kMaxLinearTokens};
}

// Tiles come by bulk tensor copies.
void require_tensor_copies(const DeviceInfo& device) {
  constexpr int kFirst = 90;
  if (is_host_arch(device.arch) || device.compute_capability() >= kFirst) return;
  throw DeviceUnavailable("this GPU cannot run linear layers",
                          fmt::format("gpu={} arch={}", device.name, device.arch),
                          "a model needs sm_90 or later; attention alone runs from sm_80 on");
}

}  // namespace

LinearLayers::LinearLayers(Device& device, const Load& load,
                           std::span<const LinearEpilogue> epilogues, LinearWeights weights)
    : device_(device), weights_(weights) {
  require_tensor_copies(device.info());
  for (const LinearEpilogue epilogue : epilogues) {
    for (const int block_m : token_blocks(weights)) {
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

void LinearLayers::prefill_by(std::unique_ptr<Gemm> gemm, const Load& load,
                              std::span<const LinearShape> shapes, int max_tokens) {
  if (gemm == nullptr || max_tokens <= kMaxLinearTokens) return;
  std::vector<LinearShape> layers(shapes.begin(), shapes.end());
  for (LinearShape& shape : layers) shape.weights = weights_;
  prefill_ = std::make_unique<LinearPrefill>(device_, load, std::move(gemm), layers, max_tokens);
}

std::string LinearLayers::prefill_text() const {
  return prefill_ == nullptr ? fmt::format("linear.cuh, {} tokens a pass", kMaxLinearTokens)
                             : prefill_->name();
}

void LinearLayers::run(LinearShape shape, LinearArgs args, StreamHandle stream) const {
  shape.weights = weights_;
  if (prefill_ != nullptr && prefill_->serves(shape, args.num_tokens)) {
    return prefill_->run(shape, args, stream);
  }
  const int out_bytes = shape.epilogue == LinearEpilogue::kLogits ? 4 : kBytesPerElement;
  for (int left = args.num_tokens; left > 0; left -= args.num_tokens) {
    args.num_tokens = std::min(left, kMaxLinearTokens);
    LinearKernel linear = kernels_.lower_bound({shape.epilogue, args.num_tokens})->second.linear;
    linear.shape = shape;
    linear.plan = plan_linear(shape, linear.config, device_.info().num_sms);
    launch_linear(device_, linear, args, stream);
    args.input += std::uint64_t{1} * args.num_tokens * shape.in_features * kBytesPerElement;
    args.out += std::uint64_t{1} * args.num_tokens * shape.out_features * out_bytes;
  }
}

}  // namespace attune
