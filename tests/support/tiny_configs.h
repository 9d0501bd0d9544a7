// Configs of models that are small enough to be filled with random weights and run in double.
#pragma once

#include <nlohmann/json.hpp>

namespace attune {

// Text-only: two sliding layers, a global one, and the same again; k_eq_v as in the larger sizes.
inline nlohmann::json tiny_dense_config() {
  return nlohmann::json::parse(R"({
    "model_type": "gemma4_text", "vocab_size": 48, "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 64, "global_head_dim": 128, "num_global_key_value_heads": 1,
    "attention_k_eq_v": true, "sliding_window": 5, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6, "final_logit_softcapping": 3.0, "hidden_size_per_layer_input": 0,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention",
                    "sliding_attention", "sliding_attention", "full_attention"]})");
}

// As the smallest sizes are: per-layer inputs, and a tail of layers without K and V.
inline nlohmann::json tiny_per_layer_config() {
  nlohmann::json config = tiny_dense_config();
  config.update(nlohmann::json::parse(R"({
    "attention_k_eq_v": false, "num_kv_shared_layers": 3, "use_double_wide_mlp": true,
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 48})"));
  return config;
}

inline nlohmann::json tiny_experts_config() {
  nlohmann::json config = tiny_dense_config();
  config.update(nlohmann::json::parse(R"({
    "enable_moe_block": true, "num_experts": 6, "top_k_experts": 2,
    "moe_intermediate_size": 12})"));
  return config;
}

// A head for a model of 16 hidden and 48 tokens.
inline nlohmann::json tiny_head_config() {
  return nlohmann::json::parse(R"({
    "speculators_model_type": "eagle3", "draft_vocab_size": 12, "norm_before_residual": true,
    "eagle_aux_hidden_state_layer_ids": [1, 3, 5],
    "transformer_layer_config": {
      "hidden_size": 16, "intermediate_size": 20, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-6, "vocab_size": 48,
      "rope_theta": 10000.0}})");
}

}  // namespace attune
