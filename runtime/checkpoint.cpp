#include "runtime/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "common/error.h"
#include "runtime/json_section.h"

namespace attune {
namespace {

constexpr std::string_view kTextOnly = "model.";
constexpr std::string_view kMultimodal = "model.language_model.";

// Parts of multimodal checkpoints that text needs nothing of.
constexpr std::array<std::string_view, 5> kTowers = {"model.vision_tower.", "model.embed_vision.",
                                                     "model.vision_embedder.", "model.audio_tower.",
                                                     "model.embed_audio."};

// What names of the specs are called in a file.
struct Renaming {
  std::string_view prefix, prefix_in_file;

  std::string in_file(const std::string& name) const {
    if (!name.starts_with(prefix)) return name;
    return fmt::format("{}{}", prefix_in_file, name.substr(prefix.size()));
  }
};

bool has_prefix(const TensorViews& tensors, std::string_view prefix) {
  const auto first = tensors.lower_bound(prefix);
  return first != tensors.end() && first->first.starts_with(prefix);
}

std::string described(Dtype dtype, const TensorShape& shape) {
  return fmt::format("{} {}", name_of(dtype), text_of(shape));
}

// Hands out a file's tensors and keeps account of what is wrong with them.
class Matcher {
 public:
  Matcher(const TensorViews& tensors, Renaming renaming) : tensors_(tensors), renaming_(renaming) {}

  TensorView take(const WeightSpec& spec) {
    const std::string name = renaming_.in_file(spec.name);
    taken_.insert(name);
    const auto found = tensors_.find(name);
    const std::string expected = described(spec.dtype, spec.shape);
    if (found == tensors_.end()) {
      add_problem(name, "(nothing)", expected);
      return {};
    }
    const TensorView& tensor = found->second;
    if (tensor.dtype != spec.dtype || tensor.shape != spec.shape) {
      add_problem(name, described(tensor.dtype, tensor.shape), expected);
    }
    return tensor;
  }

  void ignore(const std::string& name) { taken_.insert(renaming_.in_file(name)); }

  // Throws when there was a problem, or when a tensor is left over.
  void finish() {
    for (const auto& [name, tensor] : tensors_) {
      const bool is_of_tower = std::any_of(kTowers.begin(), kTowers.end(),
                                           [&](auto tower) { return name.starts_with(tower); });
      if (is_of_tower || taken_.contains(name)) continue;
      add_problem(name, described(tensor.dtype, tensor.shape), "(nothing)");
    }
    if (num_problems_ == 0) return;
    const std::string more =
        num_problems_ > kMaxShown ? fmt::format(" and {} more", num_problems_ - kMaxShown) : "";
    throw InvalidArgument("the weights do not fit the config", problems_ + more,
                          "config.json and the weights have to be of one model");
  }

 private:
  static constexpr int kMaxShown = 4;

  void add_problem(const std::string& name, std::string_view found, std::string_view expected) {
    if (++num_problems_ > kMaxShown) return;
    problems_ += fmt::format("{}tensor={} found={} expected={}", problems_.empty() ? "" : ", ",
                             shown(nlohmann::json(name)), found, expected);
  }

  const TensorViews& tensors_;
  Renaming renaming_;
  std::set<std::string> taken_;
  int num_problems_ = 0;
  std::string problems_;
};

void check_draft_vocabulary(const Eagle3Config& config, const TensorView& d2t) {
  std::set<std::int64_t> targets;
  std::int64_t draft = 0;
  for (const std::int64_t offset : elements<std::int64_t>(d2t)) {
    // Compared before they are added: an offset may be any number.
    const bool is_inside = offset >= -draft && offset < config.target_vocab_size - draft;
    if (!is_inside || !targets.insert(draft + offset).second) {
      throw InvalidArgument("the draft vocabulary cannot be used",
                            fmt::format("tensor=d2t draft_token={} offset={} target_vocab_size={}",
                                        draft, offset, config.target_vocab_size),
                            is_inside ? "each draft token has a target token of its own"
                                      : "draft tokens lead to tokens of the model");
    }
    ++draft;
  }
}

}  // namespace

ModelTensors<TensorView> match_weights(const ModelConfig& config, const TensorViews& tensors) {
  Matcher matcher(tensors, {kTextOnly, has_prefix(tensors, kMultimodal) ? kMultimodal : kTextOnly});
  ModelConfig stored = config;
  stored.tie_word_embeddings = config.tie_word_embeddings && !tensors.contains("lm_head.weight");
  ModelTensors<TensorView> weights;
  for_each_weight(stored, &weights,
                  [&](const WeightSpec& spec, TensorView& tensor) { tensor = matcher.take(spec); });
  for (int idx = 0; idx < config.num_layers(); ++idx) {
    if (config.layer(idx).owns_cache(idx)) continue;
    for (const std::string_view unused : {"k_proj", "v_proj", "k_norm"}) {
      matcher.ignore(fmt::format("{}layers.{}.self_attn.{}.weight", kTextOnly, idx, unused));
    }
  }
  matcher.finish();
  if (stored.tie_word_embeddings) weights.lm_head = weights.embed_tokens;
  return weights;
}

Eagle3Tensors<TensorView> match_weights(const Eagle3Config& config, const TensorViews& tensors) {
  constexpr std::string_view kLayer = "layers.0.", kOlderLayer = "midlayer.";
  Matcher matcher(tensors, {kLayer, has_prefix(tensors, kOlderLayer) ? kOlderLayer : kLayer});
  // The model's embeddings are as wide as a tap.
  const bool has_embed_tokens =
      tensors.contains("embed_tokens.weight") || config.hidden_size != config.target_hidden_size;
  Eagle3Tensors<TensorView> weights;
  for_each_weight(config, has_embed_tokens, &weights,
                  [&](const WeightSpec& spec, TensorView& tensor) { tensor = matcher.take(spec); });
  matcher.ignore("t2d");
  matcher.finish();
  check_draft_vocabulary(config, weights.d2t);
  return weights;
}

std::vector<std::int64_t> target_tokens(const TensorView& d2t) {
  std::vector<std::int64_t> tokens = elements<std::int64_t>(d2t);
  for (std::size_t draft = 0; draft < tokens.size(); ++draft) {
    tokens[draft] += static_cast<std::int64_t>(draft);
  }
  return tokens;
}

Checkpoint Checkpoint::open(const std::filesystem::path& folder) {
  Checkpoint checkpoint{ModelConfig::from_file(folder), Safetensors(folder), {}};
  checkpoint.weights = naming_file(
      folder, [&] { return match_weights(checkpoint.config, checkpoint.files.tensors()); });
  return checkpoint;
}

Eagle3Checkpoint Eagle3Checkpoint::open(const std::filesystem::path& folder) {
  Eagle3Checkpoint checkpoint{Eagle3Config::from_file(folder), Safetensors(folder), {}};
  checkpoint.weights = naming_file(
      folder, [&] { return match_weights(checkpoint.config, checkpoint.files.tensors()); });
  return checkpoint;
}

}  // namespace attune
