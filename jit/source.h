// (family, variant) to one translation unit with its asserts, and the headers it includes.
#pragma once

#include <string>
#include <vector>

#include "common/text.h"
#include "templates/family.h"

namespace attune {

struct Source {
  std::string text;
  std::string split_symbol;           // "splitkv_d512_contiguous_bf16_m16n64s2w8"
  std::string combine_symbol;         // "combine_d512_bf16"
  std::vector<EmbeddedFile> headers;  // the embedded files it includes, directly or not
};

// Symbols of a variant's two kernels; they spell the variant, so a profile reads by itself.
struct AttentionSymbols {
  std::string split;
  std::string combine;
};
AttentionSymbols attention_symbols(const Variant& variant);

// The translation unit of an attention variant: the split kernel and its combine.
Source attention_source(const Variant& variant);

// The translation unit of the measuring kernels (noise fill, read bandwidth, tensor rate) for an
// architecture. Symbols: "fill_noise", "probe_read", "probe_tensor".
Source probe_source(const std::string& arch);

}  // namespace attune
