#include "jit/source.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/host/host_target.h"
#include "templates/config.h"
#include "templates/params.h"

namespace attune {
namespace {

// Appends to `headers` every file that `text` includes and that is not there yet, then what those
// include.
void collect_headers(std::string_view text, const FindFile& find,
                     std::vector<EmbeddedFile>* headers) {
  constexpr std::string_view kInclude = "#include \"";
  for (std::size_t at = text.find(kInclude); at != std::string_view::npos;
       at = text.find(kInclude, at + 1)) {
    const std::size_t begin = at + kInclude.size();
    const std::string_view name = text.substr(begin, text.find('"', begin) - begin);
    const auto same_name = [&](const EmbeddedFile& file) { return file.name == name; };
    if (std::any_of(headers->begin(), headers->end(), same_name)) continue;
    const EmbeddedFile* file = find(name);
    if (file == nullptr) continue;
    headers->push_back(*file);
    collect_headers(file->text, find, headers);
  }
}

const EmbeddedFile* find_embedded(std::string_view name) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

std::string_view enumerator_of(KvLayout layout) {
  switch (layout) {
    case KvLayout::kContiguous:
      return "attune::KvLayout::kContiguous";
    case KvLayout::kRing:
      return "attune::KvLayout::kRing";
  }
  throw InvalidArgument("unknown KV layout", fmt::format("value={}", static_cast<int>(layout)));
}

constexpr std::string_view kAttentionText =
    R"(#include "{entry}"
#include "templates/combine.cuh"

constexpr attune::KernelConfig kConfig{{
    .block_m = {block_m}, .block_n = {block_n}, .num_stages = {num_stages}, .num_warps = {num_warps}}};
static_assert(sizeof(attune::AttentionParams) == {params_bytes}, "host and device disagree on AttentionParams");
static_assert(attune::splitkv_smem_bytes(kConfig, {head_dim}) == {smem_bytes}, "host and device disagree on smem");

extern "C" __global__ void __launch_bounds__({num_threads})
{split}(const __grid_constant__ attune::AttentionParams p) {{
  attune::splitkv<kConfig, {head_dim}, {layout}, {softcap}>(p);
}}

extern "C" __global__ void __launch_bounds__(attune::kCombineThreads)
{combine}(const __grid_constant__ attune::AttentionParams p) {{
  attune::combine<kConfig, {head_dim}>(p);
}}
)";

constexpr std::string_view kProbeText =
    R"(#include "templates/probe.cuh"

static_assert(sizeof(attune::FillParams) == {fill_bytes}, "host and device disagree on FillParams");
static_assert(sizeof(attune::ProbeParams) == {probe_bytes}, "host and device disagree on ProbeParams");

extern "C" __global__ void __launch_bounds__(256)
fill_noise(const __grid_constant__ attune::FillParams p) {{
  attune::fill_noise(p);
}}

extern "C" __global__ void __launch_bounds__(512)
probe_read(const __grid_constant__ attune::ProbeParams p) {{
  attune::probe_read(p);
}}

extern "C" __global__ void __launch_bounds__(attune::kProbeTensorThreads)
probe_tensor(const __grid_constant__ attune::ProbeParams p) {{
  attune::probe_tensor(p);
}}
)";

}  // namespace

AttentionSymbols attention_symbols(const Variant& variant) {
  AttentionSymbols symbols;
  symbols.split = variant.text();
  std::replace(symbols.split.begin(), symbols.split.end(), '/', '_');
  symbols.combine = fmt::format("combine_d{}_{}", variant.head_dim, name_of(variant.dtype));
  return symbols;
}

Source attention_source(const Variant& variant) {
  const Family* family = find_family(variant.family);
  if (family == nullptr) {
    throw InvalidArgument("unknown kernel family", fmt::format("variant={}", variant.text()));
  }
  const KernelConfig& config = variant.config;
  const AttentionSymbols symbols = attention_symbols(variant);
  Source source;
  source.split_symbol = symbols.split;
  source.combine_symbol = symbols.combine;
  source.symbols = {symbols.split, symbols.combine};
  source.text = fmt::format(
      kAttentionText, fmt::arg("entry", family->entry_file), fmt::arg("block_m", config.block_m),
      fmt::arg("block_n", config.block_n), fmt::arg("num_stages", config.num_stages),
      fmt::arg("num_warps", config.num_warps), fmt::arg("params_bytes", sizeof(AttentionParams)),
      fmt::arg("head_dim", variant.head_dim),
      fmt::arg("smem_bytes", splitkv_smem_bytes(config, variant.head_dim)),
      fmt::arg("num_threads", config.num_warps * kWarpSize), fmt::arg("split", symbols.split),
      fmt::arg("combine", symbols.combine), fmt::arg("layout", enumerator_of(variant.kv_layout)),
      fmt::arg("softcap", variant.softcap));
  source.headers = included_files(source.text, find_embedded);
  return source;
}

Source probe_source(const std::string& arch) {
  Source source;
  source.symbols = {"fill_noise", "probe_read", "probe_tensor"};
  source.text = fmt::format(kProbeText, fmt::arg("fill_bytes", sizeof(FillParams)),
                            fmt::arg("probe_bytes", sizeof(ProbeParams)));
  // Only sm_90a has wgmma.
  if (arch == "sm_90a") source.text.insert(0, "#define ATTUNE_ARCH_SM90A 1\n");
  source.headers = included_files(source.text, find_embedded);
  return source;
}

std::vector<EmbeddedFile> included_files(std::string_view text, const FindFile& find) {
  std::vector<EmbeddedFile> files;
  collect_headers(text, find, &files);
  return files;
}

Digest template_digest(const Family& family, const std::string& arch) {
  if (!is_host_arch(arch)) return family.template_digest();
  std::string all = family.template_digest().text();
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.name.starts_with("templates/host/")) continue;
    all += fmt::format("{}:{}\n", file.name, digest_of(file.text).text());
  }
  return digest_of(all);
}

}  // namespace attune
