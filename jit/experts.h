// Linear layers of the experts that tokens chose, on a device.
#pragma once

#include "jit/device.h"
#include "templates/expert_plan.h"

namespace attune {

// A kernel of experts.cuh and its launch.
struct ExpertsKernel {
  Kernel kernel;
  KernelConfig config;
  LinearShape shape;  // of one expert
  LinearPlan plan;
  int num_experts = 1;
};

// Device pointers, 16-byte aligned.
struct ExpertsArgs {
  DevicePtr weights =
      0;  // bf16 [num_experts * weight_rows, in_features], or packed (linear_config.h)
  DevicePtr input = 0;   // bf16 [num_tokens, in_features], or [entries, num_tokens, in_features]
  DevicePtr out = 0;     // bf16 [entries, num_tokens, out_features]
  DevicePtr chosen = 0;  // RouteParams::chosen of the group
  int num_tokens = 1;    // up to the config's BLOCK_M
  int most_entries = 1;  // memory that input and out have
  bool has_input_per_entry = false;
};

// One launch, safe in stream capture. Throws InvalidArgument when num_tokens is out of range.
void launch_experts(Device& device, const ExpertsKernel& experts, const ExpertsArgs& args,
                    StreamHandle stream);

}  // namespace attune
