// The weights of an EAGLE-3 head in device memory, as its kernels take them.
#pragma once

#include <cstdint>
#include <vector>

#include "jit/device.h"
#include "runtime/eagle3_config.h"
#include "runtime/weights.h"

namespace attune {

struct Eagle3Weights {
  DevicePtr embed_tokens = 0, fc = 0, norm = 0, lm_head = 0;
  DevicePtr input_norm = 0, hidden_norm = 0, post_attention_norm = 0;
  DevicePtr qkv_proj = 0, o_proj = 0, gate_up_proj = 0, down_proj = 0;
  std::vector<std::int32_t> target_tokens;
  std::vector<DeviceMem> memory;
};

// Rows of q, k and v together.
int qkv_width(const Eagle3Config& config);

// `target_embedding` is there for heads without embed_tokens. Waits for the copies.
Eagle3Weights upload_weights(Device& device, const Eagle3Tensors<TensorView>& tensors,
                             DevicePtr target_embedding);

// The same for a seed on every device, as random_weights of a model; draft tokens are spread over the
// target's vocabulary.
Eagle3Weights random_weights(Device& device, const Eagle3Config& config, const Kernel& fill,
                             std::uint64_t seed);

}  // namespace attune
