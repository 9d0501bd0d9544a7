#include "jit/device.h"
#include "jit/source.h"

namespace attune {

AttentionKernels load_attention(Device& device, const Binary& binary, const Variant& variant,
                                const LaunchPlan& plan) {
  const AttentionSymbols symbols = attention_symbols(variant);
  AttentionKernels kernels;
  kernels.module = device.load(binary);
  kernels.split = device.kernel(kernels.module, symbols.split, plan.split.smem_bytes);
  if (!symbols.combine.empty()) {
    kernels.combine = device.kernel(kernels.module, symbols.combine, plan.combine.smem_bytes);
  }
  return kernels;
}

void launch_attention(Device& device, const AttentionKernels& kernels, const LaunchPlan& plan,
                      const AttentionParams& params, StreamHandle stream) {
  device.launch(kernels.split, plan.split, &params, stream);
  if (plan.needs_combine) device.launch(kernels.combine, plan.combine, &params, stream);
}

}  // namespace attune
