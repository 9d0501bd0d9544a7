// Keys follow vLLM's speculators format (vllm-project/vllm, Apache-2.0).
#include "runtime/eagle3_config.h"

#include <fmt/format.h>

#include "common/error.h"
#include "runtime/json_section.h"

namespace attune {
namespace {

constexpr std::string_view kConfig = "the EAGLE-3 config";
constexpr int kMaxWidth = 1 << 20;
constexpr int kMaxVocab = 1 << 24;
constexpr int kMaxHeads = 65535;
constexpr int kMaxHeadDim = 512;
constexpr int kMaxTap = 1024;

// The base is flat in older files.
double read_rope_theta(const JsonSection& layer) {
  if (layer.has("rope_scaling")) layer.refuse("rope_scaling", "frequencies are not scaled");
  if (!layer.has("rope_parameters")) return layer.number("rope_theta", 1, 1e12);
  const JsonSection rope = layer.section("rope_parameters");
  if (rope.has("rope_type")) rope.text("rope_type", {"default"});
  return rope.has("rope_theta") || !layer.has("rope_theta") ? rope.number("rope_theta", 1, 1e12)
                                                            : layer.number("rope_theta", 1, 1e12);
}

void read_layer(const JsonSection& layer, Eagle3Config* config) {
  config->hidden_size = layer.integer("hidden_size", 1, kMaxWidth);
  config->intermediate_size = layer.integer("intermediate_size", 1, kMaxWidth);
  config->num_q_heads = layer.integer("num_attention_heads", 1, kMaxHeads);
  config->num_kv_heads = layer.integer_or("num_key_value_heads", config->num_q_heads, 1, kMaxHeads);
  if (config->num_q_heads % config->num_kv_heads != 0) {
    layer.refuse("num_key_value_heads",
                 fmt::format("it divides num_attention_heads={}", config->num_q_heads));
  }
  config->head_dim = layer.has("head_dim") ? layer.integer("head_dim", 2, kMaxHeadDim)
                                           : config->hidden_size / config->num_q_heads;
  if (config->head_dim % 2 != 0) layer.refuse("head_dim", "its halves turn against each other");
  config->rope_theta = read_rope_theta(layer);
  config->rms_norm_eps = layer.number("rms_norm_eps", 0, 1);
  config->target_vocab_size = layer.integer("vocab_size", 1, kMaxVocab);
  if (layer.has("hidden_act")) layer.text("hidden_act", {"silu"});
  if (layer.integer_or("num_hidden_layers", 1, 0, 1024) != 1) {
    layer.refuse("num_hidden_layers", "a head has one layer");
  }
  for (const std::string_view key : {"attention_bias", "mlp_bias"}) {
    if (layer.boolean_or(key, false)) layer.refuse(key, "projections have no bias");
  }
}

std::vector<int> read_taps(const JsonSection& root) {
  constexpr std::string_view kKey = "eagle_aux_hidden_state_layer_ids";
  const std::vector<int> taps = root.integers(kKey, 0, kMaxTap);
  if (taps.empty()) root.refuse(kKey, "it lists the hidden states that the head reads");
  for (std::size_t i = 1; i < taps.size(); ++i) {
    if (taps[i] <= taps[i - 1]) {
      root.refuse_element(kKey, i,
                          fmt::format("taps ascend, the one before it is {}", taps[i - 1]));
    }
  }
  return taps;
}

Eagle3Config read(const JsonSection& root) {
  root.text("speculators_model_type", {"eagle3"});
  Eagle3Config config;
  read_layer(root.section("transformer_layer_config"), &config);
  config.target_hidden_size =
      root.integer_or("target_hidden_size", config.hidden_size, 1, kMaxWidth);
  config.draft_vocab_size = root.integer("draft_vocab_size", 1, config.target_vocab_size);
  config.norm_before_residual = root.boolean_or("norm_before_residual", false);
  if (root.boolean_or("norm_before_fc", false)) {
    root.refuse("norm_before_fc", "heads with a norm in front of fc are not supported");
  }
  config.taps = read_taps(root);
  return config;
}

}  // namespace

Eagle3Config Eagle3Config::from_json(std::string_view text) {
  const nlohmann::json root = parse_json(text, kConfig, "a config is one JSON object");
  return read(JsonSection(root, "", kConfig));
}

Eagle3Config Eagle3Config::from_file(const std::filesystem::path& path) {
  return read_config(path, kConfig, from_json);
}

void Eagle3Config::check_fits(const ModelConfig& target) const {
  const auto check = [](bool fits, std::string_view key, int head, int model,
                        std::string_view rule) {
    if (fits) return;
    throw InvalidArgument("the EAGLE-3 head was made for another model",
                          fmt::format("{} head={} model={}", key, head, model), rule);
  };
  check(target_hidden_size == target.hidden_size(), "hidden_size", target_hidden_size,
        target.hidden_size(), "the head reads hidden states of the model");
  check(target_vocab_size == target.vocab_size, "vocab_size", target_vocab_size, target.vocab_size,
        "both have one vocabulary");
  const int last_tap = taps.empty() ? 0 : taps.back();
  check(last_tap <= target.num_layers(), "last_tap", last_tap, target.num_layers(),
        "a tap is at most the number of layers");
}

}  // namespace attune
