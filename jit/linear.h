// Linear layers on a device.
#pragma once

#include "jit/device.h"
#include "templates/model_plan.h"

namespace attune {

// A kernel of linear.cuh and its launch for one shape.
struct LinearKernel {
  Kernel kernel;
  KernelConfig config;
  LinearShape shape;
  LinearPlan plan;
};

// Device pointers, 16-byte aligned.
struct LinearArgs {
  DevicePtr weights = 0;  // bf16 [weight_rows, in_features], or packed (linear_config.h)
  DevicePtr input = 0;    // bf16 [num_tokens, in_features]
  DevicePtr out = 0;      // bf16 [num_tokens, out_features]; of logits float
  int num_tokens = 1;     // up to the config's BLOCK_M
  float softcap = 0.0f;   // of logits
};

// Rows of bf16 at `address` in boxes; those of kLinearColumns columns are swizzled.
TensorMap linear_row_map(Device& device, DevicePtr address, int columns, int rows, int box_columns,
                         int box_rows);

// One launch; its tensor maps are made on the host, so it is safe in stream capture. Throws
// InvalidArgument when num_tokens is out of range.
void launch_linear(Device& device, const LinearKernel& linear, const LinearArgs& args,
                   StreamHandle stream);

// Packs bf16 rows, by the kernel of quantize_source(). Enqueues.
void quantize_int4(Device& device, const Kernel& kernel, DevicePtr rows, int num_rows,
                   int in_features, DevicePtr packed, StreamHandle stream);

}  // namespace attune
