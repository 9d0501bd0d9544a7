#include "runtime/linear_layers.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/host/host_target.h"

namespace attune {
namespace {

// Tiles come by bulk tensor copies, into slots in shared memory.
void require_linear(const DeviceInfo& device, const LinearShape& shape) {
  constexpr int kFirst = 90;
  if (!is_host_arch(device.arch) && device.compute_capability() < kFirst) {
    throw DeviceUnavailable("this GPU cannot run linear layers",
                            fmt::format("gpu={} arch={}", device.name, device.arch),
                            "a model needs sm_90 or later; attention alone runs from sm_80 on");
  }
  if (default_linear_config(shape, kMaxLinearTokens, device.max_smem_per_block_bytes,
                            device.num_sms))
    return;
  throw DeviceUnavailable("this GPU cannot run linear layers",
                          fmt::format("gpu={} weights={} smem_bytes={}", device.name,
                                      name_of(shape.weights), device.max_smem_per_block_bytes),
                          "use bf16 weights, or a GPU with more shared memory");
}

}  // namespace

LinearLayers::LinearLayers(Engine& engine, std::span<const LinearShape> shapes,
                           LinearWeights weights)
    : device_(engine.device()), weights_(weights) {
  for (LinearShape shape : shapes) {
    shape.weights = weights_;
    require_linear(device_.info(), shape);
    for (const int tokens : {1, kMmaTokens, kMaxLinearTokens}) {
      if (!shape.is_problem_of(tokens)) continue;
      auto& slot = slots_[{shape.is_experts(), shape.epilogue, tokens, shape}];
      if (slot == nullptr) slot = engine.prepare_slot(Problem::of_linear(tokens, shape).text());
    }
  }
}

void LinearLayers::prefill_by(std::unique_ptr<Gemm> gemm, const Load& load,
                              std::span<const LinearShape> shapes, int max_tokens,
                              LinearPrefill::Warn warn) {
  if (gemm == nullptr || max_tokens <= kMaxLinearTokens) return;
  std::vector<LinearShape> layers(shapes.begin(), shapes.end());
  for (LinearShape& shape : layers) shape.weights = weights_;
  prefill_ = std::make_unique<LinearPrefill>(device_, load, std::move(gemm), layers, max_tokens,
                                             std::move(warn));
}

std::string LinearLayers::prefill_text(int num_tokens) const {
  return prefill_ != nullptr && prefill_->multiplies(num_tokens)
             ? prefill_->name()
             : fmt::format("linear.cuh, {} tokens a pass", kMaxLinearTokens);
}

const Attention::Prepared& LinearLayers::prepared_for(const LinearShape& shape, int tokens) const {
  const auto key_of = [&](const LinearShape& of) {
    return std::tuple(shape.is_experts(), shape.epilogue, tokens, of);
  };
  auto found = slots_.find(key_of(shape));
  if (found == slots_.end()) found = slots_.lower_bound(key_of({}));
  if (found == slots_.end() || found->first != key_of(std::get<3>(found->first))) {
    throw InvalidArgument("no linear layer was prepared with this epilogue",
                          fmt::format("epilogue={}", name_of(shape.epilogue)),
                          "name its shape when the layers are made");
  }
  return found->second->prepared();
}

void LinearLayers::run(LinearShape shape, LinearArgs args, StreamHandle stream) const {
  shape.weights = weights_;
  if (prefill_ != nullptr && prefill_->serves(shape, args.num_tokens) &&
      prefill_->run(shape, args, stream)) {
    return;
  }
  const int out_bytes = shape.epilogue == LinearEpilogue::kLogits ? 4 : kBytesPerElement;
  for (int left = args.num_tokens; left > 0; left -= args.num_tokens) {
    args.num_tokens = std::min(left, kMaxLinearTokens);
    const auto& served = prepared_for(shape, shape.problem_tokens(args.num_tokens));
    const KernelConfig& config = served.choice.candidate.config;
    const LinearKernel linear{served.kernels->split, config, shape,
                              plan_linear(shape, config, device_.info().num_sms)};
    launch_linear(device_, linear, args, stream);
    args.input += std::uint64_t{1} * args.num_tokens * shape.in_features * kBytesPerElement;
    args.out += std::uint64_t{1} * args.num_tokens * shape.out_features * out_bytes;
  }
}

}  // namespace attune
