// Linear layers on a device, those of experts too.
#pragma once

#include <span>

#include "jit/device.h"
#include "templates/model_plan.h"

namespace attune {

// A kernel of linear.cuh, or of experts.cuh where the shape is one of experts, and its launch.
struct LinearKernel {
  Kernel kernel;
  KernelConfig config;
  LinearShape shape;
  LinearPlan plan;
};

// Device pointers, 16-byte aligned. Rows of out, and of input where each expert has its own, are those of
// one entry after another.
struct LinearArgs {
  DevicePtr weights = 0;  // bf16 [all_weight_rows, in_features], or packed (linear_config.h)
  DevicePtr input = 0;    // bf16 [num_tokens, in_features]
  DevicePtr out = 0;      // bf16 [num_tokens, out_features]; of logits float
  int num_tokens = 1;     // up to the config's BLOCK_M
  float softcap = 0.0f;   // of logits
  DevicePtr chosen = 0;   // of experts: RouteParams::chosen of the group
  int most_entries = 1;   // of experts: those that input and out have memory for
};

// Rows of bf16 at `address` in boxes; those of kLinearColumns columns are swizzled.
TensorMap linear_row_map(Device& device, DevicePtr address, int columns, int rows, int box_columns,
                         int box_rows);

// RouteParams::chosen of a group with these entries, which ascend. Waits for the copy.
DeviceMem expert_list(Device& device, std::span<const int> entries, StreamHandle stream);

// One launch; its tensor maps are made on the host, so it is safe in stream capture. Throws
// InvalidArgument when num_tokens is out of range.
void launch_linear(Device& device, const LinearKernel& linear, const LinearArgs& args,
                   StreamHandle stream);

// Packs bf16 rows, by the kernel of quantize_source(). Enqueues.
void quantize_int4(Device& device, const Kernel& kernel, DevicePtr rows, int num_rows,
                   int in_features, DevicePtr packed, StreamHandle stream);

}  // namespace attune
