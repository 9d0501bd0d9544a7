// Names and shapes follow transformers' Gemma 4 and vLLM's speculators (both Apache-2.0).
#include "runtime/weights.h"

namespace attune {
namespace {

struct NoTensor {};

}  // namespace

std::vector<WeightSpec> weight_specs(const ModelConfig& config) {
  std::vector<WeightSpec> specs;
  ModelTensors<NoTensor> tensors;
  for_each_weight(config, &tensors,
                  [&](const WeightSpec& spec, NoTensor&) { specs.push_back(spec); });
  return specs;
}

std::vector<WeightSpec> weight_specs(const Eagle3Config& config, bool has_embed_tokens) {
  std::vector<WeightSpec> specs;
  Eagle3Tensors<NoTensor> tensors;
  for_each_weight(config, has_embed_tokens, &tensors,
                  [&](const WeightSpec& spec, NoTensor&) { specs.push_back(spec); });
  return specs;
}

std::int64_t num_parameters(const std::vector<WeightSpec>& specs) {
  std::int64_t count = 0;
  for (const WeightSpec& spec : specs) count += num_elements(spec.shape);
  return count;
}

}  // namespace attune
