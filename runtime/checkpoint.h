// Checkpoints: a config.json and the tensors that it promises, each name, dtype and shape checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "runtime/safetensors.h"
#include "runtime/weights.h"

namespace attune {

// Finds every tensor of the model. Multimodal prefixes are read too, their towers skipped, and so
// are k_proj, v_proj and k_norm of layers that read another one's cache. Where there is no lm_head
// and the config ties it, it is embed_tokens. Throws InvalidArgument that names the tensors that
// are missing, that have another dtype or shape, or that belong to nothing.
ModelTensors<TensorView> match_weights(const ModelConfig& config, const TensorViews& tensors);

// The same of an EAGLE-3 head. Older files' midlayer.* are layers.0.*; embed_tokens may be absent,
// then its view is empty; t2d is not read. Throws also where d2t leads out of the model's
// vocabulary, or twice to one token.
Eagle3Tensors<TensorView> match_weights(const Eagle3Config& config, const TensorViews& tensors);

// The target token of each draft token, from a d2t that was matched.
std::vector<std::int64_t> target_tokens(const TensorView& d2t);

// A folder with a config.json and safetensors files. Nothing is copied: weights are views of the
// mapped files.
struct Checkpoint {
  ModelConfig config;
  Safetensors files;
  ModelTensors<TensorView> weights;

  // Throws InvalidArgument that names the file and what is wrong with it.
  static Checkpoint open(const std::filesystem::path& folder);
};

struct Eagle3Checkpoint {
  Eagle3Config config;
  Safetensors files;
  Eagle3Tensors<TensorView> weights;

  static Eagle3Checkpoint open(const std::filesystem::path& folder);
};

}  // namespace attune
