// All of a Gemma 4 text model's config.json that its forward pass needs.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "runtime/gemma4_geometry.h"
#include "templates/config.h"

namespace attune {

struct ModelConfig {
  Gemma4Geometry geometry;
  int vocab_size = 1;
  int intermediate_size = 1;
  bool double_wide_mlp = false;     // of layers that read another one's cache
  double final_logit_softcap = 0;   // 0: off
  bool tie_word_embeddings = true;  // whether embed_tokens is the head where there is no lm_head
  int per_layer_input_size = 0;     // 0: the model has no per-layer inputs
  int num_experts = 0;              // 0: dense
  int top_k_experts = 0;
  int expert_intermediate_size = 0;
  int bos_token_id = 2;
  std::vector<int> eos_token_ids = {1};

  int num_layers() const { return static_cast<int>(geometry.layers.size()); }
  int hidden_size() const { return geometry.hidden_size; }
  const LayerGeometry& layer(int layer_idx) const {
    return geometry.layers[static_cast<std::size_t>(layer_idx)];
  }
  // Of the dense MLP of a layer.
  int mlp_width(int layer_idx) const;
  // What embeddings are multiplied with: the square root of their width, rounded to bf16 first.
  float embedding_scale() const;
  float per_layer_embedding_scale() const;
  // The smallest layout of the global layers: unified where all of them make V of K's projection.
  KvLayout compact_layout() const;

  // Reads what Gemma4Geometry reads, and throws as it does.
  static ModelConfig from_json(std::string_view text);
  static ModelConfig from_file(const std::filesystem::path& path);

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

}  // namespace attune
