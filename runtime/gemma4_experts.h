// The experts of a Gemma 4 layer beside its dense MLP: kernels and activations.
#pragma once

#include <memory>

#include "jit/device.h"
#include "runtime/gemma4_weights.h"
#include "runtime/linear_layers.h"
#include "runtime/model_config.h"

namespace attune {

class Gemma4Experts {
 public:
  // Of a model that has them, for steps of up to `longest_step` tokens; expert matrices are of `weights`,
  // the router is bf16. Throws InvalidArgument for numbers that their kernels do not admit, and what
  // `load` throws. `config` has to outlive it.
  Gemma4Experts(Engine& engine, const LinearLayers::Load& load, const ModelConfig& config,
                LinearWeights weights, int longest_step);

  // The step behind a layer's attention, and what its tokens choose. A launch at least has to stand between
  // this and `leave`, which reads the choice early: the dense MLP. Enqueues.
  void enter(const ResidualParams& step, const Gemma4LayerWeights& weights, int num_tokens,
             StreamHandle stream) const;
  // The experts, and the step that adds them and the dense MLP, which is the branch of `step`. Enqueues.
  void leave(const ResidualParams& step, const Gemma4LayerWeights& weights, int num_tokens,
             StreamHandle stream) const;

  std::size_t bytes() const;

 private:
  // Tokens from `first` on, at most kMaxLinearTokens.
  void run_group(const Gemma4LayerWeights& weights, int first, int num_tokens,
                 StreamHandle stream) const;
  DevicePtr chosen_of(int first) const;

  Device& device_;
  const ModelConfig& config_;
  LinearLayers router_, experts_;
  std::shared_ptr<const LoadedModule> steps_module_, route_module_;
  Kernel enter_, mix_, route_;

  DeviceMem router_input_, expert_input_;  // bf16 [longest step, hidden]
  DeviceMem scores_, route_weights_;       // float [longest step, num_experts or top_k]
  DeviceMem chosen_, entries_;             // RouteParams
  DeviceMem activated_, expert_rows_;      // bf16 [entries * group, width or hidden], of a group
};

}  // namespace attune
