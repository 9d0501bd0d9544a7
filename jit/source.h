// (family, variant) to one translation unit with its asserts, and the headers it includes.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/text.h"
#include "templates/family.h"

namespace attune {

struct Source {
  std::string text;
  std::string split_symbol;               // "splitkv_d512_contiguous_bf16_m16n64s2w8"
  std::string combine_symbol;             // "combine_d512_bf16"; empty where nothing is split
  std::vector<std::string> symbols = {};  // of all its kernels
  std::vector<EmbeddedFile> headers;      // the embedded files it includes, directly or not
};

// Symbols of a variant's two kernels; they spell the variant, so a profile reads by itself. A linear
// layer has the first alone.
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

// The translation unit of the prologue of layers with this head_dim and layout. Symbol:
// "prologue_d512_unified_paged", and "prologue_raw_d256_contiguous" where q, k and v have no norms.
// Throws InvalidArgument where the template has limits.
Source prologue_source(int head_dim, KvLayout layout, bool normed = true);

// The translation unit of the kernel that writes the device's state. Symbol: "write_state".
Source state_source();

// The files that `text` includes, directly or not, each once and in the order of their inclusion.
// `find` knows them by name; what it gives nullptr for stays out: the compiler reports it with its
// line.
using FindFile = std::function<const EmbeddedFile*(std::string_view name)>;
std::vector<EmbeddedFile> included_files(std::string_view text, const FindFile& find);
// The same of the embedded files.
std::vector<EmbeddedFile> embedded_headers(std::string_view text);

// Digest of all that a family's kernels are made of on an architecture: Family::template_digest(),
// on the host also templates/host/.
Digest template_digest(const Family& family, const std::string& arch);
// The same of the prologue and the state kernel.
Digest prologue_digest(const std::string& arch);

}  // namespace attune
