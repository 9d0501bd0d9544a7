#include <fmt/format.h>

#include "common/error.h"
#include "jit/device.h"
#include "jit/gemm.h"
#include "jit/source.h"
#include "templates/config.h"

namespace attune {

std::unique_ptr<Gemm> Device::open_gemm(const GemmSearch&) { return nullptr; }

AttentionKernels load_attention(Device& device, const Binary& binary, const Variant& variant,
                                const LaunchPlan& plan) {
  const AttentionSymbols symbols = attention_symbols(variant);
  AttentionKernels kernels;
  kernels.share_slots = variant.shared_slots;
  kernels.module = device.load(binary);
  kernels.split = device.kernel(kernels.module, symbols.split, plan.split.smem_bytes);
  if (!symbols.combine.empty()) {
    kernels.combine = device.kernel(kernels.module, symbols.combine, plan.combine.smem_bytes);
  }
  return kernels;
}

namespace {

// Rows [sequences or pages, num_kv_heads, panels, rows, 64 columns]. How many sequences or pages
// there are nobody knows, and no kernel goes by it.
TensorMap kv_map(Device& device, const LaunchPlan& plan, const AttentionParams& params,
                 const void* rows, int64 batch_stride, int64 token_stride, int64 head_stride) {
  constexpr std::uint64_t kPanel = 64;
  constexpr std::uint64_t kMost = std::uint64_t{1} << 31;
  const auto stride_bytes = [](int64 elements) {
    return static_cast<std::uint64_t>(elements) * kBytesPerElement;
  };
  TensorMapSpec spec;
  spec.rank = 5;
  spec.address = reinterpret_cast<std::uint64_t>(rows);
  spec.size = {kPanel,
               static_cast<std::uint64_t>(plan.page_size > 0 ? plan.page_size : params.kv_capacity),
               plan.kv_columns / kPanel, static_cast<std::uint64_t>(params.num_kv_heads), kMost};
  spec.stride_bytes = {stride_bytes(token_stride), kPanel * kBytesPerElement,
                       stride_bytes(head_stride), stride_bytes(batch_stride)};
  spec.box = {static_cast<std::uint32_t>(kPanel), static_cast<std::uint32_t>(plan.kv_box.rows),
              static_cast<std::uint32_t>(plan.kv_box.panels), 1, 1};
  spec.swizzle = TensorMapSwizzle::k128;
  return device.tensor_map(spec);
}

}  // namespace

AttentionParams with_tensor_maps(Device& device, const LaunchPlan& plan,
                                 const AttentionParams& params) {
  AttentionParams mapped = params;
  if (plan.kv_box.rows == 0) return mapped;
  mapped.k_map = kv_map(device, plan, params, params.k, params.k_batch_stride,
                        params.k_token_stride, params.k_head_stride);
  if (!plan.unified) {
    mapped.v_map = kv_map(device, plan, params, params.v, params.v_batch_stride,
                          params.v_token_stride, params.v_head_stride);
  }
  return mapped;
}

void launch_attention(Device& device, const AttentionKernels& kernels, const LaunchPlan& plan,
                      const AttentionParams& params, StreamHandle stream) {
  if (plan.split_cap == 0 && !kernels.share_slots) {
    throw InvalidArgument("the plan shares slots among sequences, the kernels do not",
                          fmt::format("batch={} num_slots={}", params.batch, plan.num_slots),
                          "plan with plan_launch(problem, candidate, kernels.share_slots)");
  }
  KernelLaunch split = plan.split;
  split.programmatic = params.overlap != 0;
  if (plan.kv_box.rows == 0) {
    device.launch(kernels.split, split, &params, stream);
  } else {
    const AttentionParams mapped = with_tensor_maps(device, plan, params);
    device.launch(kernels.split, split, &mapped, stream);
  }
  if (plan.needs_combine) device.launch(kernels.combine, plan.combine, &params, stream);
}

}  // namespace attune
