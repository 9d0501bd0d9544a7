#include "runtime/per_layer_inputs.h"

#include <cmath>

#include "jit/model_source.h"
#include "runtime/device_pointer.h"
#include "templates/model_plan.h"

namespace attune {

PerLayerInputs::PerLayerInputs(Device& device, const LinearLayers::Load& load,
                               const ModelConfig& config, int longest_step)
    : device_(device), config_(config) {
  const Source source = per_layer_source(config.per_layer_input_size);
  module_ = load(source);
  make_inputs_ = device.kernel(module_->module, source.symbols[0], 0);
  apply_gate_ = device.kernel(module_->module, source.symbols[1], 0);
  const std::size_t row = static_cast<std::size_t>(config.per_layer_input_size) * kBytesPerElement;
  gate_ = device.allocate(static_cast<std::size_t>(longest_step) * row);
  inputs_ = device.allocate(gate_.bytes() * config.geometry.layers.size());
}

void PerLayerInputs::prepare(const LinearLayers& linears, const Gemma4Weights& weights,
                             DevicePtr tokens, DevicePtr embedded, int num_tokens,
                             StreamHandle stream) const {
  const int hidden = config_.hidden_size();
  linears.run({config_.num_layers() * config_.per_layer_input_size, hidden},
              {.weights = weights.per_layer_model_projection,
               .input = embedded,
               .out = inputs_.ptr(),
               .num_tokens = num_tokens},
              stream);
  PerLayerParams p{};
  p.projected = pointer<const uint16>(inputs_.ptr());
  p.inputs = pointer<uint16>(inputs_.ptr());
  p.weight = pointer<const uint16>(weights.per_layer_projection_norm);
  p.tokens = pointer<const int>(tokens);
  p.embedding = pointer<const uint16>(weights.embed_tokens_per_layer);
  p.projected_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(hidden)));
  p.embedding_scale = config_.per_layer_embedding_scale();
  p.num_layers = config_.num_layers();
  p.width = config_.per_layer_input_size;
  p.eps = static_cast<float>(config_.geometry.rms_norm_eps);
  device_.launch(make_inputs_, plan_per_layer_inputs(p.num_layers, num_tokens), &p, stream);
}

void PerLayerInputs::run(const LinearLayers& linears, const Gemma4LayerWeights& weights,
                         int layer_idx, DevicePtr stream_rows, DevicePtr branch, int num_tokens,
                         StreamHandle stream) const {
  const int hidden = config_.hidden_size();
  const int width = config_.per_layer_input_size;
  linears.run({width, hidden},
              {.weights = weights.per_layer_input_gate,
               .input = stream_rows,
               .out = gate_.ptr(),
               .num_tokens = num_tokens},
              stream);
  PerLayerGateParams p{};
  p.gate = pointer<uint16>(gate_.ptr());
  p.inputs = pointer<const uint16>(inputs_.ptr()) + static_cast<int64>(layer_idx) * width;
  p.inputs_stride = static_cast<int64>(config_.num_layers()) * width;
  p.width = width;
  device_.launch(apply_gate_, plan_per_layer_gate(num_tokens), &p, stream);
  linears.run({hidden, width},
              {.weights = weights.per_layer_projection,
               .input = gate_.ptr(),
               .out = branch,
               .num_tokens = num_tokens},
              stream);
}

}  // namespace attune
