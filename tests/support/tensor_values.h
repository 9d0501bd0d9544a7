// The values of a checkpoint's tensors, widened: what oracles compute with.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/safetensors.h"
#include "runtime/weights.h"
#include "tuner/reference.h"

namespace attune {

// Of an F32 or BF16 tensor; both widen without loss.
inline std::vector<float> floats_of(const TensorView& tensor) {
  if (tensor.dtype == Dtype::kF32) return elements<float>(tensor);
  if (tensor.dtype != Dtype::kBf16) {
    throw std::runtime_error("no floats: " + std::string(name_of(tensor.dtype)));
  }
  std::vector<float> wide;
  for (const std::uint16_t bits : elements<std::uint16_t>(tensor)) {
    wide.push_back(bf16_to_float(bits));
  }
  return wide;
}

using ModelFloats = ModelTensors<std::vector<float>>;

// A lm_head that is tied is a copy of embed_tokens.
inline ModelFloats floats_of(ModelConfig config, ModelTensors<TensorView> views) {
  config.tie_word_embeddings = false;
  std::vector<TensorView> in_order;
  for_each_weight(config, &views,
                  [&](const WeightSpec&, TensorView& view) { in_order.push_back(view); });
  ModelFloats floats;
  auto next = in_order.begin();
  for_each_weight(config, &floats, [&](const WeightSpec&, std::vector<float>& values) {
    values = floats_of(*next++);
  });
  return floats;
}

using Eagle3Floats = Eagle3Tensors<std::vector<float>>;

// d2t, of integers, stays empty, and embed_tokens where the head has none.
inline Eagle3Floats floats_of(const Eagle3Config& config, Eagle3Tensors<TensorView> views) {
  const bool has_embed_tokens = !views.embed_tokens.bytes.empty();
  std::vector<TensorView> in_order;
  for_each_weight(config, has_embed_tokens, &views,
                  [&](const WeightSpec&, TensorView& view) { in_order.push_back(view); });
  Eagle3Floats floats;
  auto next = in_order.begin();
  for_each_weight(config, has_embed_tokens, &floats,
                  [&](const WeightSpec& spec, std::vector<float>& values) {
                    if (spec.dtype == Dtype::kBf16) values = floats_of(*next);
                    ++next;
                  });
  return floats;
}

}  // namespace attune
