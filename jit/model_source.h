// The translation units of a model's kernels beside its attention, and of a variant of either.
#pragma once

#include <string>

#include "jit/source.h"
#include "templates/linear_config.h"

namespace attune {

// Symbol: "linear_bf16_store_m8n48s4w8". Throws InvalidArgument where the template refuses the config.
Source linear_source(const KernelConfig& config, LinearEpilogue epilogue,
                     LinearWeights weights = LinearWeights::kBf16);

// The translation unit of any variant: that of attention_source or linear_source.
Source variant_source(const Variant& variant);

// Packs weights. Symbol: "quantize_int4".
Source quantize_source();

// A step of the residual stream for rows of `hidden` elements. Symbols: "residual_c3" and "embed_c3".
// Throws InvalidArgument where the template has limits.
Source residual_source(int hidden);

// Symbol: "argmax".
Source argmax_source();

}  // namespace attune
