// Keys follow transformers' configuration of Gemma 4 (configuration_gemma4.py, Apache-2.0).
#include "runtime/gemma4_geometry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "common/text.h"
#include "runtime/gemma4_sections.h"
#include "templates/problem.h"

namespace attune {
namespace {

using nlohmann::json;

constexpr int kMaxLayers = 1024;
constexpr int kMaxHiddenSize = 1 << 20;
// As problems have them.
constexpr int kMaxHeads = 65535;
constexpr std::array kHeadDims = {64, 128, 256, 512};

constexpr std::string_view kSliding = "sliding_attention";
constexpr std::string_view kGlobal = "full_attention";

std::string_view name_of(LayerKind kind) { return kind == LayerKind::kGlobal ? kGlobal : kSliding; }

int read_head_dim(const JsonSection& section, std::string_view key) {
  const int dim = section.integer(key, 1, kHeadDims.back());
  if (std::find(kHeadDims.begin(), kHeadDims.end(), dim) == kHeadDims.end()) {
    section.refuse(key, fmt::format("{} is {}", key, fmt::join(kHeadDims, " or ")));
  }
  return dim;
}

std::vector<LayerKind> layer_kinds(const JsonSection& text, int num_layers) {
  constexpr int kDefaultPeriod = 6;
  std::vector<LayerKind> kinds;
  if (!text.has("layer_types")) {
    for (int i = 1; i <= num_layers; ++i) {
      kinds.push_back(i % kDefaultPeriod == 0 ? LayerKind::kGlobal : LayerKind::kSliding);
    }
  } else {
    const json& types = *text.object().find("layer_types");
    if (!types.is_array() || types.size() != static_cast<std::size_t>(num_layers)) {
      text.refuse("layer_types", fmt::format("it lists num_hidden_layers={} layers", num_layers));
    }
    for (const json& type : types) {
      if (type != kGlobal && type != kSliding) {
        text.refuse_element("layer_types", kinds.size(),
                            fmt::format("a layer is {} or {}", kSliding, kGlobal));
      }
      kinds.push_back(type == kGlobal ? LayerKind::kGlobal : LayerKind::kSliding);
    }
  }
  kinds.back() = LayerKind::kGlobal;  // whatever the list says: the reference does the same
  return kinds;
}

RopeGeometry read_rope(const JsonSection& text, LayerKind kind, int head_dim) {
  if (!text.has("rope_parameters")) {
    if (kind == LayerKind::kSliding) return {1e4, head_dim / 2, head_dim, 1};
    return {1e6, head_dim / 8, head_dim, 1};  // a quarter of the pairs
  }
  const JsonSection rope = text.section("rope_parameters").section(name_of(kind));
  RopeGeometry geometry{rope.number("rope_theta", 1, 1e12), head_dim / 2, head_dim, 1};
  const double part = rope.number_or("partial_rotary_factor", 1, 0, 1);
  geometry.factor = rope.number_or("factor", 1, 0, 1e6);
  if (rope.text("rope_type", {"default", "proportional"}) == "default") {
    // The default type has another meaning for a part, and none for a factor.
    constexpr std::string_view kOnlyProportional = "it is 1 where rope_type is default";
    if (part != 1) rope.refuse("partial_rotary_factor", kOnlyProportional);
    if (geometry.factor != 1) rope.refuse("factor", kOnlyProportional);
  }
  geometry.num_pairs = static_cast<int>(part * head_dim / 2);
  if (geometry.num_pairs < 1) {
    rope.refuse("partial_rotary_factor", fmt::format("a pair of head_dim={} turns", head_dim));
  }
  return geometry;
}

// The dimensions of a layer as the keys of the whole model say them.
LayerGeometry read_layer(const JsonSection& text, LayerKind kind, bool k_eq_v) {
  constexpr int kDefaultGlobalHeadDim = 512;
  const bool global = kind == LayerKind::kGlobal;
  LayerGeometry layer;
  layer.kind = kind;
  layer.k_eq_v = global && k_eq_v;
  layer.num_q_heads = text.integer("num_attention_heads", 1, kMaxHeads);
  layer.num_kv_heads = text.integer("num_key_value_heads", 1, kMaxHeads);
  layer.head_dim = read_head_dim(text, "head_dim");
  if (!global) layer.window = text.integer("sliding_window", 1, kMaxWindow);
  if (global && !text.has("per_layer_config")) {
    layer.head_dim = text.has("global_head_dim") ? read_head_dim(text, "global_head_dim")
                                                 : kDefaultGlobalHeadDim;
    if (k_eq_v) {
      layer.num_kv_heads =
          text.integer_or("num_global_key_value_heads", layer.num_kv_heads, 1, kMaxHeads);
    }
  }
  return layer;
}

void apply_per_layer_config(const JsonSection& text, std::vector<LayerGeometry>* layers) {
  if (!text.has("per_layer_config")) return;
  const JsonSection overrides = text.section("per_layer_config");
  const int num_layers = static_cast<int>(layers->size());
  for (const auto& [key, value] : overrides.object().items()) {
    const auto idx = parse_int(key);
    if (!idx || *idx < 0 || *idx >= num_layers) {
      overrides.refuse(key, fmt::format("a key is the index of a layer, 0 to {}", num_layers - 1));
    }
    const JsonSection section = overrides.section(key);
    LayerGeometry& layer = (*layers)[static_cast<std::size_t>(*idx)];
    if (section.has("head_dim")) layer.head_dim = read_head_dim(section, "head_dim");
    layer.num_q_heads = section.integer_or("num_attention_heads", layer.num_q_heads, 1, kMaxHeads);
    layer.num_kv_heads =
        section.integer_or("num_key_value_heads", layer.num_kv_heads, 1, kMaxHeads);
  }
}

void check_heads(const JsonSection& text, const std::vector<LayerGeometry>& layers) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].num_q_heads % layers[i].num_kv_heads == 0) continue;
    text.fail(fmt::format("num_attention_heads={} kv_heads={} layer={}", layers[i].num_q_heads,
                          layers[i].num_kv_heads, i),
              "the q heads are a multiple of the kv heads");
  }
}

// The last layers have no K and V of their own: each reads the cache of the last layer of its kind
// that has.
void assign_caches(const JsonSection& text, std::vector<LayerGeometry>* layers) {
  const int num_layers = static_cast<int>(layers->size());
  const int num_shared = text.integer_or("num_kv_shared_layers", 0, 0, num_layers - 1);
  const auto first_shared = layers->begin() + (num_layers - num_shared);
  for (auto layer = layers->begin(); layer != layers->end(); ++layer) {
    auto owner = layer;
    if (layer >= first_shared) {
      const auto same_kind = [&](const LayerGeometry& one) { return one.kind == layer->kind; };
      const auto found =
          std::find_if(std::make_reverse_iterator(first_shared), layers->rend(), same_kind);
      if (found == layers->rend()) {
        text.refuse(
            "num_kv_shared_layers",
            fmt::format("a layer of {} that is not shared comes first", name_of(layer->kind)));
      }
      owner = std::prev(found.base());
      if (owner->head_dim != layer->head_dim || owner->num_kv_heads != layer->num_kv_heads) {
        text.refuse("num_kv_shared_layers",
                    fmt::format("layers {} and {} share a cache, so their head_dim and kv heads "
                                "are the same",
                                owner - layers->begin(), layer - layers->begin()));
      }
    }
    layer->kv_layer = static_cast<int>(owner - layers->begin());
  }
}

void refuse_unsupported(const JsonSection& text) {
  if (text.boolean_or("attention_bias", false)) {
    text.refuse("attention_bias", "projections with a bias are not supported");
  }
  // "vision" is causal for text; with "all" every token would see later ones.
  if (text.has("use_bidirectional_attention")) {
    text.text("use_bidirectional_attention", {"vision"});
  }
}

}  // namespace

JsonSection gemma4_text_section(const JsonSection& root) {
  const std::string type =
      root.text("model_type", {"gemma4", "gemma4_unified", "gemma4_text", "gemma4_unified_text"});
  if (type.ends_with("_text")) return root;
  const JsonSection text = root.section("text_config");
  if (text.has("model_type")) text.text("model_type", {"gemma4_text", "gemma4_unified_text"});
  return text;
}

Gemma4Geometry read_gemma4_geometry(const JsonSection& text) {
  refuse_unsupported(text);
  Gemma4Geometry model;
  model.hidden_size = text.integer("hidden_size", 1, kMaxHiddenSize);
  model.max_positions = text.integer("max_position_embeddings", 1, kMaxKvLen);
  model.rms_norm_eps = text.number("rms_norm_eps", 0, 1);
  const int num_layers = text.integer("num_hidden_layers", 1, kMaxLayers);
  const bool k_eq_v = text.boolean_or("attention_k_eq_v", false);
  for (const LayerKind kind : layer_kinds(text, num_layers)) {
    model.layers.push_back(read_layer(text, kind, k_eq_v));
  }
  apply_per_layer_config(text, &model.layers);
  check_heads(text, model.layers);
  for (LayerGeometry& layer : model.layers) {
    layer.rope = read_rope(text, layer.kind, layer.head_dim);
  }
  assign_caches(text, &model.layers);
  return model;
}

float RopeGeometry::inverse_frequency(int pair_idx) const {
  if (pair_idx < 0 || pair_idx >= num_pairs) return 0;
  return static_cast<float>(std::pow(theta, -2.0 * pair_idx / head_dim) / factor);
}

Gemma4Geometry Gemma4Geometry::from_json(std::string_view text) {
  const nlohmann::json root = parse_json(text, kGemma4Config, kOneObject);
  return read_gemma4_geometry(gemma4_text_section(JsonSection(root, "", kGemma4Config)));
}

Gemma4Geometry Gemma4Geometry::from_file(const std::filesystem::path& path) {
  return read_config(path, kGemma4Config, from_json);
}

}  // namespace attune
