// The tensors of a model as typed tables, and the one statement of their names and shapes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/eagle3_config.h"
#include "runtime/model_config.h"
#include "runtime/safetensors.h"

namespace attune {

// What a checkpoint has to hold: the name is that of text-only files. Matrices are
// [out_features, in_features].
struct WeightSpec {
  std::string name;
  Dtype dtype = Dtype::kBf16;
  TensorShape shape;

  friend bool operator==(const WeightSpec&, const WeightSpec&) = default;
};

// A Tensor is a TensorView of a file, or a place in device memory. Members that a layer has no
// tensor for stay as they were made.
template <typename Tensor>
struct LayerTensors {
  Tensor input_norm = {}, post_attention_norm = {}, pre_feedforward_norm = {};
  Tensor post_feedforward_norm = {}, layer_scalar = {};
  Tensor q_proj = {}, k_proj = {}, v_proj = {}, o_proj = {}, q_norm = {}, k_norm = {};
  Tensor gate_proj = {}, up_proj = {}, down_proj = {};
  // Per-layer inputs.
  Tensor per_layer_input_gate = {}, per_layer_projection = {}, post_per_layer_input_norm = {};
  // Experts; expert_gate_up is [num_experts, 2 * width, hidden_size], the gate's rows first.
  Tensor router_proj = {}, router_scale = {}, router_per_expert_scale = {};
  Tensor expert_gate_up = {}, expert_down = {};
  Tensor dense_post_feedforward_norm = {}, expert_pre_feedforward_norm = {};
  Tensor expert_post_feedforward_norm = {};
};

template <typename Tensor>
struct ModelTensors {
  Tensor embed_tokens = {}, norm = {}, lm_head = {};
  // Per-layer inputs.
  Tensor embed_tokens_per_layer = {}, per_layer_model_projection = {};
  Tensor per_layer_projection_norm = {};
  std::vector<LayerTensors<Tensor>> layers;
};

template <typename Tensor>
struct Eagle3Tensors {
  Tensor embed_tokens = {}, fc = {}, norm = {}, lm_head = {};
  Tensor d2t = {};  // a draft token's target token less its own id
  Tensor input_norm = {}, hidden_norm = {}, post_attention_norm = {};
  Tensor q_proj = {}, k_proj = {}, v_proj = {}, o_proj = {};
  Tensor gate_proj = {}, up_proj = {}, down_proj = {};
};

namespace weights_detail {

// Gives tensors of one part of a model to visit(WeightSpec, Tensor&).
template <typename Visit>
struct Part {
  std::string prefix;
  const Visit& visit;

  template <typename Tensor>
  void operator()(std::string_view name, Tensor& tensor, TensorShape shape,
                  Dtype dtype = Dtype::kBf16) const {
    visit(WeightSpec{prefix + std::string(name), dtype, std::move(shape)}, tensor);
  }
};

template <typename Tensor, typename Visit>
void visit_attention(const ModelConfig& config, int idx, LayerTensors<Tensor>& layer,
                     const Part<Visit>& part) {
  const LayerGeometry& of = config.layer(idx);
  const std::int64_t hidden = config.hidden_size();
  const std::int64_t q_width = std::int64_t{1} * of.num_q_heads * of.head_dim;
  const std::int64_t kv_width = std::int64_t{1} * of.num_kv_heads * of.head_dim;
  part("self_attn.q_proj.weight", layer.q_proj, {q_width, hidden});
  part("self_attn.q_norm.weight", layer.q_norm, {of.head_dim});
  part("self_attn.o_proj.weight", layer.o_proj, {hidden, q_width});
  if (!of.owns_cache(idx)) return;
  part("self_attn.k_proj.weight", layer.k_proj, {kv_width, hidden});
  part("self_attn.k_norm.weight", layer.k_norm, {of.head_dim});
  if (!of.k_eq_v) part("self_attn.v_proj.weight", layer.v_proj, {kv_width, hidden});
}

template <typename Tensor, typename Visit>
void visit_mlp(const ModelConfig& config, int idx, LayerTensors<Tensor>& layer,
               const Part<Visit>& part) {
  const std::int64_t hidden = config.hidden_size();
  const std::int64_t width = config.mlp_width(idx);
  part("mlp.gate_proj.weight", layer.gate_proj, {width, hidden});
  part("mlp.up_proj.weight", layer.up_proj, {width, hidden});
  part("mlp.down_proj.weight", layer.down_proj, {hidden, width});
}

template <typename Tensor, typename Visit>
void visit_experts(const ModelConfig& config, LayerTensors<Tensor>& layer,
                   const Part<Visit>& part) {
  if (config.num_experts == 0) return;
  const std::int64_t hidden = config.hidden_size();
  const std::int64_t experts = config.num_experts;
  const std::int64_t width = config.expert_intermediate_size;
  part("router.proj.weight", layer.router_proj, {experts, hidden});
  part("router.scale", layer.router_scale, {hidden});
  part("router.per_expert_scale", layer.router_per_expert_scale, {experts});
  part("experts.gate_up_proj", layer.expert_gate_up, {experts, 2 * width, hidden});
  part("experts.down_proj", layer.expert_down, {experts, hidden, width});
  part("post_feedforward_layernorm_1.weight", layer.dense_post_feedforward_norm, {hidden});
  part("pre_feedforward_layernorm_2.weight", layer.expert_pre_feedforward_norm, {hidden});
  part("post_feedforward_layernorm_2.weight", layer.expert_post_feedforward_norm, {hidden});
}

template <typename Tensor, typename Visit>
void visit_per_layer_inputs(const ModelConfig& config, LayerTensors<Tensor>& layer,
                            const Part<Visit>& part) {
  const std::int64_t hidden = config.hidden_size();
  const std::int64_t width = config.per_layer_input_size;
  if (width == 0) return;
  part("per_layer_input_gate.weight", layer.per_layer_input_gate, {width, hidden});
  part("per_layer_projection.weight", layer.per_layer_projection, {hidden, width});
  part("post_per_layer_input_norm.weight", layer.post_per_layer_input_norm, {hidden});
}

template <typename Tensor, typename Visit>
void visit_layer(const ModelConfig& config, int idx, LayerTensors<Tensor>& layer,
                 const Visit& visit) {
  const Part<Visit> part{"model.layers." + std::to_string(idx) + ".", visit};
  const std::int64_t hidden = config.hidden_size();
  part("input_layernorm.weight", layer.input_norm, {hidden});
  visit_attention(config, idx, layer, part);
  part("post_attention_layernorm.weight", layer.post_attention_norm, {hidden});
  part("pre_feedforward_layernorm.weight", layer.pre_feedforward_norm, {hidden});
  visit_mlp(config, idx, layer, part);
  visit_experts(config, layer, part);
  part("post_feedforward_layernorm.weight", layer.post_feedforward_norm, {hidden});
  visit_per_layer_inputs(config, layer, part);
  part("layer_scalar", layer.layer_scalar, {1});
}

}  // namespace weights_detail

// Calls visit(WeightSpec, Tensor&) for every tensor of the model, in the order of the forward pass,
// and makes tensors->layers as long as the model. lm_head is one of them unless it is tied.
template <typename Tensor, typename Visit>
void for_each_weight(const ModelConfig& config, ModelTensors<Tensor>* tensors, const Visit& visit) {
  const weights_detail::Part<Visit> part{"model.", visit};
  const std::int64_t vocab = config.vocab_size;
  const std::int64_t hidden = config.hidden_size();
  part("embed_tokens.weight", tensors->embed_tokens, {vocab, hidden});
  if (config.per_layer_input_size > 0) {
    const std::int64_t all = std::int64_t{1} * config.num_layers() * config.per_layer_input_size;
    part("embed_tokens_per_layer.weight", tensors->embed_tokens_per_layer, {vocab, all});
    part("per_layer_model_projection.weight", tensors->per_layer_model_projection, {all, hidden});
    part("per_layer_projection_norm.weight", tensors->per_layer_projection_norm,
         {config.per_layer_input_size});
  }
  tensors->layers.resize(config.geometry.layers.size());
  for (int idx = 0; idx < config.num_layers(); ++idx) {
    weights_detail::visit_layer(config, idx, tensors->layers[static_cast<std::size_t>(idx)], visit);
  }
  part("norm.weight", tensors->norm, {hidden});
  if (!config.tie_word_embeddings) {
    visit(WeightSpec{"lm_head.weight", Dtype::kBf16, {vocab, hidden}}, tensors->lm_head);
  }
}

// The same of an EAGLE-3 head, which may use the model's embed_tokens in place of its own.
template <typename Tensor, typename Visit>
void for_each_weight(const Eagle3Config& config, bool has_embed_tokens,
                     Eagle3Tensors<Tensor>* tensors, const Visit& visit) {
  const weights_detail::Part<Visit> part{"", visit}, layer{"layers.0.", visit};
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t q_width = std::int64_t{1} * config.num_q_heads * config.head_dim;
  const std::int64_t kv_width = std::int64_t{1} * config.num_kv_heads * config.head_dim;
  const std::int64_t mlp_width = config.intermediate_size;
  if (has_embed_tokens) {
    part("embed_tokens.weight", tensors->embed_tokens, {config.target_vocab_size, hidden});
  }
  part("fc.weight", tensors->fc,
       {hidden, std::int64_t{1} * config.num_taps() * config.target_hidden_size});
  layer("input_layernorm.weight", tensors->input_norm, {hidden});
  layer("hidden_norm.weight", tensors->hidden_norm, {hidden});
  layer("self_attn.q_proj.weight", tensors->q_proj, {q_width, 2 * hidden});
  layer("self_attn.k_proj.weight", tensors->k_proj, {kv_width, 2 * hidden});
  layer("self_attn.v_proj.weight", tensors->v_proj, {kv_width, 2 * hidden});
  layer("self_attn.o_proj.weight", tensors->o_proj, {hidden, q_width});
  layer("post_attention_layernorm.weight", tensors->post_attention_norm, {hidden});
  layer("mlp.gate_proj.weight", tensors->gate_proj, {mlp_width, hidden});
  layer("mlp.up_proj.weight", tensors->up_proj, {mlp_width, hidden});
  layer("mlp.down_proj.weight", tensors->down_proj, {hidden, mlp_width});
  part("norm.weight", tensors->norm, {hidden});
  part("lm_head.weight", tensors->lm_head, {config.draft_vocab_size, hidden});
  part("d2t", tensors->d2t, {config.draft_vocab_size}, Dtype::kI64);
}

// Every tensor of a model, in the order of for_each_weight: what random weights have to fill.
std::vector<WeightSpec> weight_specs(const ModelConfig& config);
std::vector<WeightSpec> weight_specs(const Eagle3Config& config, bool has_embed_tokens = true);

// The elements of all tensors.
std::int64_t num_parameters(const std::vector<WeightSpec>& specs);

}  // namespace attune
