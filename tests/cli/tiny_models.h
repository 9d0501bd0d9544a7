// Small Gemma 4 models and EAGLE-3 heads as files, for programs that run on the CPU.
#pragma once

#include <filesystem>
#include <fstream>

#include "tests/support/made_tensors.h"

namespace attune {

// A sliding layer and a global one.
inline std::filesystem::path write_two_layers(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "two-layers.json";
  std::ofstream(file) << R"({
    "model_type": "gemma4_text", "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 64, "global_head_dim": 128,
    "attention_k_eq_v": false, "sliding_window": 32, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6, "final_logit_softcapping": 30.0, "hidden_size_per_layer_input": 0,
    "layer_types": ["sliding_attention", "full_attention"]})";
  return file;
}

// The same with per-layer inputs, experts, and a layer more of each kind that has no cache of its own.
inline std::filesystem::path write_four_layers(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "four-layers.json";
  std::ofstream(file) << R"({
    "model_type": "gemma4_text", "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 64, "global_head_dim": 128,
    "attention_k_eq_v": false, "sliding_window": 32, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6, "final_logit_softcapping": 30.0,
    "num_kv_shared_layers": 2, "use_double_wide_mlp": true,
    "hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 320,
    "enable_moe_block": true, "num_experts": 16, "top_k_experts": 4, "moe_intermediate_size": 48,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]})";
  return file;
}

// The config of a head for models of 64 hidden and 320 tokens.
inline nlohmann::json head_config(const std::vector<int>& taps) {
  nlohmann::json config = nlohmann::json::parse(R"({
    "speculators_model_type": "eagle3", "draft_vocab_size": 80, "norm_before_residual": true,
    "transformer_layer_config": {
      "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2,
      "num_key_value_heads": 1, "head_dim": 64, "rms_norm_eps": 1e-6, "vocab_size": 320,
      "rope_theta": 10000.0}})");
  config["eagle_aux_hidden_state_layer_ids"] = taps;
  return config;
}

// A folder with a head of random weights, which takes its model's embedding.
inline void write_head(const std::filesystem::path& folder, const std::vector<int>& taps) {
  const std::string config = head_config(taps).dump();
  const auto specs = weight_specs(Eagle3Config::from_json(config), false);
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "config.json") << config;
  std::ofstream(folder / "model.safetensors") << safetensors_of(random_tensors(specs, 1, 320));
}

}  // namespace attune
