// What the layers of small Gemma 4 models take of a token beside its stream: kernels and activations.
#pragma once

#include <memory>

#include "jit/device.h"
#include "runtime/gemma4_weights.h"
#include "runtime/linear_layers.h"
#include "runtime/model_config.h"

namespace attune {

class PerLayerInputs {
 public:
  // Of a model that has them, for steps of up to `longest_step` tokens. Throws what per_layer_source and
  // `load` throw. `config` has to outlive it.
  PerLayerInputs(Device& device, const LinearLayers::Load& load, const ModelConfig& config,
                 int longest_step);

  // The inputs of a step's tokens: of all layers, once a step. `tokens` are ids, `embedded` is their
  // scaled embedding. Enqueues.
  void prepare(const LinearLayers& linears, const Gemma4Weights& weights, DevicePtr tokens,
               DevicePtr embedded, int num_tokens, StreamHandle stream) const;
  // What a layer makes of its inputs and its stream, before the norm: into `branch`. Enqueues.
  void run(const LinearLayers& linears, const Gemma4LayerWeights& weights, int layer_idx,
           DevicePtr stream_rows, DevicePtr branch, int num_tokens, StreamHandle stream) const;

  std::size_t bytes() const { return inputs_.bytes() + gate_.bytes(); }

 private:
  Device& device_;
  const ModelConfig& config_;
  std::shared_ptr<const LoadedModule> module_;
  Kernel make_inputs_, apply_gate_;
  DeviceMem inputs_;  // bf16 [longest step, num_layers, per_layer_input_size]
  DeviceMem gate_;    // bf16 [longest step, per_layer_input_size]
};

}  // namespace attune
