// The layer geometry of a Gemma 4 text model, read from a Hugging Face config.json.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace attune {

enum class LayerKind { kSliding, kGlobal };

// Rotary embedding of a layer: the pairs (i, i + head_dim / 2) with i < num_pairs turn by
// position * inverse_frequency(i), all other dimensions stay.
struct RopeGeometry {
  double theta = 10000;
  int num_pairs = 0;
  int head_dim = 0;   // denominator of the exponent: the whole head, however few pairs turn
  double factor = 1;  // divides every frequency

  // theta^(-2i / head_dim) / factor, computed in double and rounded once; 0 for a pair that stays.
  float inverse_frequency(int pair_idx) const;

  friend bool operator==(const RopeGeometry&, const RopeGeometry&) = default;
};

struct LayerGeometry {
  LayerKind kind = LayerKind::kSliding;
  int num_q_heads = 1;
  int num_kv_heads = 1;
  int head_dim = 256;
  int window = 0;  // keys a query sees, itself included; 0 on global layers: all
  RopeGeometry rope = {};
  bool k_eq_v = false;  // V is made of the K projection: the layer has no v_proj
  int kv_layer = 0;     // the layer whose cache this one reads: itself, or an earlier one

  int group_size() const { return num_q_heads / num_kv_heads; }
  // A layer that reads another one's cache has no k_proj, v_proj and k_norm.
  bool owns_cache(int layer_idx) const { return kv_layer == layer_idx; }

  friend bool operator==(const LayerGeometry&, const LayerGeometry&) = default;
};

struct Gemma4Geometry {
  int hidden_size = 1;  // not the product of heads and head_dim
  int max_positions = 1;
  double rms_norm_eps = 1e-6;
  std::vector<LayerGeometry> layers;

  // Reads multimodal and text-only files, with the global layers' dimensions under their own keys
  // (global_head_dim) or in per_layer_config, which goes first. What no key says is as transformers
  // 5.17 has it. Throws InvalidArgument that names the key, its value and what is allowed.
  static Gemma4Geometry from_json(std::string_view text);
  // `path` is a config.json or a folder that has one. Throws as from_json does; the file is named.
  static Gemma4Geometry from_file(const std::filesystem::path& path);

  friend bool operator==(const Gemma4Geometry&, const Gemma4Geometry&) = default;
};

}  // namespace attune
