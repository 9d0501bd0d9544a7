#include "runtime/model_config.h"

#include <algorithm>

#include <cmath>

#include "runtime/gemma4_sections.h"
#include "tuner/reference.h"

namespace attune {
namespace {

constexpr int kMaxVocab = 1 << 24;
constexpr int kMaxWidth = 1 << 24;
constexpr int kMaxExperts = 1 << 16;

float bf16_sqrt(int value) {
  return bf16_to_float(float_to_bf16(static_cast<float>(std::sqrt(value))));
}

void refuse_unsupported(const JsonSection& root, const JsonSection& text) {
  for (const JsonSection* section : {&root, &text}) {
    if (section->has("quantization_config")) {
      section->refuse("quantization_config",
                      "weights are bf16; name the model before quantization");
    }
  }
  if (text.has("hidden_activation")) text.text("hidden_activation", {"gelu_pytorch_tanh"});
}

void read_per_layer_inputs(const JsonSection& root, const JsonSection& text, ModelConfig* config) {
  // What transformers 5.17 has where the key is absent; unified models have no such inputs.
  const std::string type =
      root.text("model_type", {"gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"});
  const int fallback = type.starts_with("gemma4_unified") ? 0 : 256;
  config->per_layer_input_size =
      text.integer_or("hidden_size_per_layer_input", fallback, 0, kMaxWidth);
  if (config->per_layer_input_size == 0) return;
  if (text.integer_or("vocab_size_per_layer_input", config->vocab_size, 0, kMaxVocab) !=
      config->vocab_size) {
    text.refuse("vocab_size_per_layer_input", "it is vocab_size: every token has its own inputs");
  }
}

void read_experts(const JsonSection& text, ModelConfig* config) {
  if (!text.boolean_or("enable_moe_block", false)) return;
  config->num_experts = text.integer("num_experts", 1, kMaxExperts);
  config->top_k_experts = text.integer("top_k_experts", 1, config->num_experts);
  config->expert_intermediate_size = text.integer("moe_intermediate_size", 1, kMaxWidth);
}

void read_tokens(const JsonSection& root, const JsonSection& text, ModelConfig* config) {
  const int last = config->vocab_size - 1;
  config->bos_token_id = text.integer_or("bos_token_id", config->bos_token_id, 0, last);
  // A multimodal file may list the ids that end a turn outside of the text part.
  for (const JsonSection* section : {&root, &text}) {
    if (!section->has("eos_token_id")) continue;
    config->eos_token_ids = section->integers("eos_token_id", 0, last, true);
    break;
  }
}

ModelConfig read(const JsonSection& root) {
  const JsonSection text = gemma4_text_section(root);
  refuse_unsupported(root, text);
  ModelConfig config;
  config.geometry = read_gemma4_geometry(text);
  config.vocab_size = text.integer("vocab_size", 1, kMaxVocab);
  config.intermediate_size = text.integer("intermediate_size", 1, kMaxWidth);
  config.double_wide_mlp = text.boolean_or("use_double_wide_mlp", false);
  config.final_logit_softcap = text.number_or("final_logit_softcapping", 0, 0, 1e6);
  // Of a multimodal model the outer key counts.
  config.tie_word_embeddings =
      root.boolean_or("tie_word_embeddings", text.boolean_or("tie_word_embeddings", true));
  read_per_layer_inputs(root, text, &config);
  read_experts(text, &config);
  read_tokens(root, text, &config);
  return config;
}

}  // namespace

int ModelConfig::mlp_width(int layer_idx) const {
  return double_wide_mlp && !layer(layer_idx).owns_cache(layer_idx) ? 2 * intermediate_size
                                                                    : intermediate_size;
}

float ModelConfig::embedding_scale() const { return bf16_sqrt(hidden_size()); }

float ModelConfig::per_layer_embedding_scale() const { return bf16_sqrt(per_layer_input_size); }

ModelConfig ModelConfig::from_json(std::string_view text) {
  const nlohmann::json root = parse_json(text, kGemma4Config, kOneObject);
  return read(JsonSection(root, "", kGemma4Config));
}

ModelConfig ModelConfig::from_file(const std::filesystem::path& path) {
  return read_config(path, kGemma4Config, from_json);
}

KvLayout ModelConfig::compact_layout() const {
  const bool unified =
      std::all_of(geometry.layers.begin(), geometry.layers.end(), [](const LayerGeometry& layer) {
        return layer.kind == LayerKind::kSliding ||
               (layer.k_eq_v && layer.head_dim == kUnifiedHeadDim);
      });
  return unified ? KvLayout::kUnified : KvLayout::kContiguous;
}

}  // namespace attune
