// The weights of a Gemma 4 model in device memory, as its kernels take them.
#pragma once

#include <vector>

#include "jit/device.h"
#include "runtime/weight_memory.h"
#include "runtime/weights.h"

namespace attune {

struct Gemma4LayerWeights {
  DevicePtr input_norm = 0, post_attention_norm = 0, pre_feedforward_norm = 0;
  DevicePtr post_feedforward_norm = 0, layer_scalar = 0;
  DevicePtr qkv_proj = 0;  // rows of q, k and v, those that the layer has
  DevicePtr o_proj = 0;
  DevicePtr gate_up_proj = 0;  // the gate's rows first
  DevicePtr down_proj = 0;
  // Per-layer inputs.
  DevicePtr per_layer_input_gate = 0, per_layer_projection = 0, post_per_layer_input_norm = 0;
  // Experts, with the rows of one behind another; of each the gate's first.
  DevicePtr router_proj = 0, router_scale = 0, router_per_expert_scale = 0;
  DevicePtr expert_gate_up = 0, expert_down = 0;
  DevicePtr dense_post_feedforward_norm = 0, expert_pre_feedforward_norm = 0;
  DevicePtr expert_post_feedforward_norm = 0;
  std::vector<std::uint16_t> q_norm, k_norm;  // on the host, for Gemma4Attention
};

struct Gemma4Weights {
  DevicePtr embed_tokens = 0, norm = 0, lm_head = 0;
  // Per-layer inputs.
  DevicePtr embed_tokens_per_layer = 0, per_layer_model_projection = 0;
  DevicePtr per_layer_projection_norm = 0;
  std::vector<Gemma4LayerWeights> layers;
  std::vector<DeviceMem> memory;
  std::size_t bytes() const;
};

// Waits for the copies.
Gemma4Weights upload_weights(Device& device, const ModelTensors<TensorView>& tensors,
                             const MatrixFormat& format);

// Normal numbers from a hash of the seed, by `fill`, a kernel "fill_noise" (jit/source.h), where they
// are many. Norms and scalars are close to what keeps logits in the range of the softcap.
Gemma4Weights random_weights(Device& device, const ModelConfig& config, const Kernel& fill,
                             const MatrixFormat& format, std::uint64_t seed);

}  // namespace attune
