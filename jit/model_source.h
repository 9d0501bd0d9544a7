// The translation units of a model's kernels beside its attention, and of a variant of either.
#pragma once

#include <string>

#include "jit/source.h"
#include "templates/linear_config.h"

namespace attune {

// Symbol: "linear_bf16_store_m8n48s4w8". Throws InvalidArgument where the template refuses the config.
Source linear_source(const KernelConfig& config, LinearEpilogue epilogue,
                     LinearWeights weights = LinearWeights::kBf16);

// That of experts. Symbol: "experts_bf16_geglu_m8n48s3w8".
Source experts_source(const KernelConfig& config, LinearEpilogue epilogue, LinearWeights weights);

// The translation unit of any variant: that of attention_source or linear_source.
Source variant_source(const Variant& variant);

// Packs weights. Symbol: "quantize_int4".
Source quantize_source();

// Unpacks them. Symbol: "dequantize_int4".
Source dequantize_source();

// Gated outputs of their rows. Symbol: "gate_geglu". Throws InvalidArgument for epilogues without a
// gate.
Source gate_source(LinearEpilogue epilogue);

// A step of the residual stream for rows of `hidden` elements. Symbols: "residual_c3" and "embed_c3".
// Throws InvalidArgument where the template has limits.
Source residual_source(int hidden);

// Per-layer inputs of `width` elements. Symbols: "per_layer_inputs_c1" and "per_layer_gate". Throws
// InvalidArgument where the template has limits.
Source per_layer_source(int width);

// The router of up to kMaxExperts experts. Symbol: "route_c4". Throws InvalidArgument where the template
// has limits.
Source route_source(int num_experts, int top_k);

// The steps of the residual stream around experts. Symbols: "enter_experts_c2" and "mix_experts_c2".
// Throws as residual_source does.
Source expert_steps_source(int hidden);

// Symbol: "argmax".
Source argmax_source();

}  // namespace attune
