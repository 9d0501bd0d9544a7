#include "runtime/gemma4_weights.h"

#include <cmath>

#include <fmt/format.h>

#include "common/error.h"
#include "runtime/weight_memory.h"

namespace attune {

std::size_t Gemma4Weights::bytes() const {
  std::size_t sum = 0;
  for (const DeviceMem& one : memory) sum += one.bytes();
  return sum;
}

namespace {

void upload_experts(const LayerTensors<TensorView>& from, WeightUploader* upload,
                    Gemma4LayerWeights* to) {
  to->router_proj = upload->plain(from.router_proj);
  to->router_scale = upload->plain(from.router_scale);
  to->router_per_expert_scale = upload->plain(from.router_per_expert_scale);
  to->expert_gate_up = upload->matrix({&from.expert_gate_up});
  to->expert_down = upload->matrix({&from.expert_down});
  to->dense_post_feedforward_norm = upload->plain(from.dense_post_feedforward_norm);
  to->expert_pre_feedforward_norm = upload->plain(from.expert_pre_feedforward_norm);
  to->expert_post_feedforward_norm = upload->plain(from.expert_post_feedforward_norm);
}

void invent_experts(const ModelConfig& config, WeightInventor* make, Gemma4LayerWeights* to) {
  const int hidden = config.hidden_size();
  const std::int64_t experts = config.num_experts;
  const std::int64_t width = config.expert_intermediate_size;
  to->router_proj = make->plain(experts, hidden);
  to->router_scale = make->vector(hidden, 1, 0.2);
  to->router_per_expert_scale = make->vector(config.num_experts, 1, 0.2);
  to->expert_gate_up = make->matrix(experts * 2 * width, hidden);
  to->expert_down = make->matrix(experts * hidden, width);
  to->dense_post_feedforward_norm = make->vector(hidden, 1, 0.2);
  to->expert_pre_feedforward_norm = make->vector(hidden, 1, 0.2);
  to->expert_post_feedforward_norm = make->vector(hidden, 1, 0.2);
}

}  // namespace

Gemma4Weights upload_weights(Device& device, const ModelTensors<TensorView>& tensors,
                             const MatrixFormat& format) {
  Gemma4Weights weights;
  WeightUploader upload(device, format, &weights.memory);
  weights.embed_tokens = upload.plain(tensors.embed_tokens);
  weights.norm = upload.plain(tensors.norm);
  const bool tied = tensors.lm_head.bytes.data() == tensors.embed_tokens.bytes.data();
  const bool shares = tied && format.weights == LinearWeights::kBf16;
  weights.lm_head = shares ? weights.embed_tokens : upload.matrix({&tensors.lm_head});
  if (!tensors.embed_tokens_per_layer.bytes.empty()) {
    weights.embed_tokens_per_layer = upload.plain(tensors.embed_tokens_per_layer);
    weights.per_layer_model_projection = upload.matrix({&tensors.per_layer_model_projection});
    weights.per_layer_projection_norm = upload.plain(tensors.per_layer_projection_norm);
  }
  for (const LayerTensors<TensorView>& from : tensors.layers) {
    Gemma4LayerWeights& to = weights.layers.emplace_back();
    to.input_norm = upload.plain(from.input_norm);
    to.post_attention_norm = upload.plain(from.post_attention_norm);
    to.pre_feedforward_norm = upload.plain(from.pre_feedforward_norm);
    to.post_feedforward_norm = upload.plain(from.post_feedforward_norm);
    to.layer_scalar = upload.plain(from.layer_scalar);
    to.qkv_proj = upload.matrix({&from.q_proj, &from.k_proj, &from.v_proj});
    to.o_proj = upload.matrix({&from.o_proj});
    to.gate_up_proj = upload.matrix({&from.gate_proj, &from.up_proj});
    to.down_proj = upload.matrix({&from.down_proj});
    if (!from.per_layer_projection.bytes.empty()) {
      to.per_layer_input_gate = upload.matrix({&from.per_layer_input_gate});
      to.per_layer_projection = upload.matrix({&from.per_layer_projection});
      to.post_per_layer_input_norm = upload.plain(from.post_per_layer_input_norm);
    }
    if (!from.router_proj.bytes.empty()) upload_experts(from, &upload, &to);
    to.q_norm = elements<std::uint16_t>(from.q_norm);
    if (!from.k_norm.bytes.empty()) to.k_norm = elements<std::uint16_t>(from.k_norm);
  }
  device.synchronize(nullptr);
  return weights;
}

Gemma4Weights random_weights(Device& device, const ModelConfig& config, const Kernel& fill,
                             const MatrixFormat& format, std::uint64_t seed) {
  Gemma4Weights weights;
  WeightInventor make(device, fill, format, seed, &weights.memory);
  const int hidden = config.hidden_size();
  weights.embed_tokens = make.plain(config.vocab_size, hidden);
  // Rows of the head are normal, so this is the deviation of the logits.
  constexpr double kLogits = 3;
  weights.norm = make.vector(hidden, 0, kLogits / std::sqrt(hidden));
  const bool shares = config.tie_word_embeddings && format.weights == LinearWeights::kBf16;
  weights.lm_head = shares ? weights.embed_tokens : make.matrix(config.vocab_size, hidden);
  const int per_layer = config.per_layer_input_size;
  const std::int64_t all_layers = std::int64_t{1} * config.num_layers() * per_layer;
  if (per_layer > 0) {
    weights.embed_tokens_per_layer = make.plain(config.vocab_size, all_layers);
    weights.per_layer_model_projection = make.matrix(all_layers, hidden);
    weights.per_layer_projection_norm = make.vector(per_layer, 1, 0.2);
  }
  // Branches as large as the embedding, or the logits would be those of the last token alone.
  const double branch = config.embedding_scale() / 2;
  for (int idx = 0; idx < config.num_layers(); ++idx) {
    const LayerGeometry& layer = config.layer(idx);
    const bool owns = layer.owns_cache(idx);
    Gemma4LayerWeights& to = weights.layers.emplace_back();
    to.input_norm = make.vector(hidden, 1, 0.2);
    to.post_attention_norm = make.vector(hidden, branch, branch / 5);
    to.pre_feedforward_norm = make.vector(hidden, 1, 0.2);
    to.post_feedforward_norm = make.vector(hidden, branch, branch / 5);
    to.layer_scalar = make.vector(1, 0.7, 0.1);
    const int kv_parts = !owns ? 0 : layer.k_eq_v ? 1 : 2;
    to.qkv_proj = make.matrix(
        std::int64_t{layer.head_dim} * (layer.num_q_heads + kv_parts * layer.num_kv_heads), hidden);
    to.o_proj = make.matrix(hidden, std::int64_t{layer.head_dim} * layer.num_q_heads);
    to.gate_up_proj = make.matrix(std::int64_t{2} * config.mlp_width(idx), hidden);
    to.down_proj = make.matrix(hidden, config.mlp_width(idx));
    if (per_layer > 0) {
      to.per_layer_input_gate = make.matrix(per_layer, hidden);
      to.per_layer_projection = make.matrix(hidden, per_layer);
      to.post_per_layer_input_norm = make.vector(hidden, branch, branch / 5);
    }
    if (config.num_experts > 0) invent_experts(config, &make, &to);
    to.q_norm = make.values(layer.head_dim, 0.3, 0.05);
    if (owns) to.k_norm = make.values(layer.head_dim, 0.3, 0.05);
  }
  device.synchronize(nullptr);
  return weights;
}

}  // namespace attune
