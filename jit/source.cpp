#include "jit/source.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/host/host_target.h"
#include "templates/config.h"
#include "templates/params.h"
#include "templates/probe_params.h"
#include "templates/prologue_plan.h"

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
    case KvLayout::kPaged:
      return "attune::KvLayout::kPaged";
    case KvLayout::kUnified:
      return "attune::KvLayout::kUnified";
    case KvLayout::kUnifiedPaged:
      return "attune::KvLayout::kUnifiedPaged";
  }
  throw InvalidArgument("unknown KV layout", fmt::format("value={}", static_cast<int>(layout)));
}

// Only sm_90a has wgmma.
constexpr std::string_view kWgmmaArch = "sm_90a";
constexpr std::string_view kWgmmaDefine = "#define ATTUNE_ARCH_SM90A 1\n";
constexpr std::string_view kSharedSlotsDefine = "#define ATTUNE_SHARED_SLOTS 1\n";

constexpr std::string_view kAttentionText =
    R"(#include "{entry_file}"

constexpr attune::KernelConfig kConfig{{
    .block_m = {block_m}, .block_n = {block_n}, .num_stages = {num_stages}, .num_warps = {num_warps}}};
static_assert(sizeof(attune::AttentionParams) == {params_bytes}, "host and device disagree on AttentionParams");
static_assert({entry_function}_smem_bytes(kConfig, {head_dim}, {layout}) == {smem_bytes}, "host and device disagree on smem");

extern "C" __global__ void __launch_bounds__({bounds})
{split}(const __grid_constant__ attune::AttentionParams p) {{
  {entry_function}<kConfig, {head_dim}, {layout}, {softcap}, {invariant}>(p);
}}
)";

constexpr std::string_view kCombineText =
    R"(
#include "templates/combine.cuh"

extern "C" __global__ void __launch_bounds__(attune::kCombineThreads, attune::kCombineCtasPerSm)
{combine}(const __grid_constant__ attune::AttentionParams p) {{
  attune::combine<kConfig, {head_dim}, {invariant}, {packed}>(p);
}}
)";

constexpr std::string_view kProbeText =
    R"(#include "templates/probe.cuh"

static_assert(sizeof(attune::FillParams) == {fill_bytes}, "host and device disagree on FillParams");
static_assert(sizeof(attune::ProbeParams) == {probe_bytes}, "host and device disagree on ProbeParams");
static_assert(sizeof(attune::LateCopyParams) == {late_bytes}, "host and device disagree on LateCopyParams");

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

extern "C" __global__ void __launch_bounds__(256)
copy_late(const __grid_constant__ attune::LateCopyParams p) {{
  attune::copy_late(p);
}}
)";

constexpr std::string_view kPrologueText =
    R"(#include "templates/prologue.cuh"

static_assert(sizeof(attune::PrologueParams) == {params_bytes}, "host and device disagree on PrologueParams");

extern "C" __global__ void __launch_bounds__(attune::kPrologueMaxThreads)
{symbol}(const __grid_constant__ attune::PrologueParams p) {{
  attune::prologue<{head_dim}, {layout}, {normed}>(p);
}}
)";

constexpr std::string_view kStateText =
    R"(#include "templates/state.cuh"

static_assert(sizeof(attune::StateParams) == {params_bytes}, "host and device disagree on StateParams");

extern "C" __global__ void __launch_bounds__(attune::kMaxStateWrites)
write_state(const __grid_constant__ attune::StateParams p) {{
  attune::write_state(p);
}}
)";

// Digest of templates together with what else kernels on an architecture are made of.
Digest digest_on(const Digest& templates, const std::string& arch) {
  if (!is_host_arch(arch)) return templates;
  std::string all = templates.text();
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.name.starts_with("templates/host/")) continue;
    all += fmt::format("{}:{}\n", file.name, digest_of(file.text).text());
  }
  return digest_of(all);
}

// ptxas holds a kernel to as few registers as let several CTAs share an SM, and spills to get there. It
// does not know of dynamic shared memory, so `splitkv` tells it where one is all. An invariant kernel has
// one CTA on an SM of most architectures, and its config is not free to avoid the spill: its BLOCK_N
// is given. Held to fewer registers a kernel also has fewer fragments under way.
std::string launch_bounds(const Variant& variant) {
  const Family& family = known_family(variant.family);
  const int num_threads = variant.config.num_warps * kWarpSize;
  if (variant.invariant || family.fills_sm) return fmt::format("{}, 1", num_threads);
  if (!family.counts_ctas) return fmt::format("{}", num_threads);
  return fmt::format("{}, attune::one_cta_per_sm({})", num_threads,
                     family.smem_bytes(variant.config, variant.head_dim, variant.kv_layout));
}

}  // namespace

AttentionSymbols attention_symbols(const Variant& variant) {
  AttentionSymbols symbols;
  symbols.split = variant.text();
  for (char& letter : symbols.split) {
    if (letter == '/' || letter == '-') letter = '_';
  }
  if (known_family(variant.family).splits_keys) {
    symbols.combine = fmt::format("combine_d{}_{}", variant.head_dim, name_of(variant.dtype));
  }
  return symbols;
}

Source attention_source(const Variant& variant) {
  const Family& family = known_family(variant.family);
  const KernelConfig& config = variant.config;
  const AttentionSymbols symbols = attention_symbols(variant);
  Source source;
  source.split_symbol = symbols.split;
  source.combine_symbol = symbols.combine;
  source.symbols = {symbols.split};
  source.text = fmt::format(
      kAttentionText, fmt::arg("entry_file", family.entry_file),
      fmt::arg("entry_function", family.entry_function), fmt::arg("block_m", config.block_m),
      fmt::arg("block_n", config.block_n), fmt::arg("num_stages", config.num_stages),
      fmt::arg("num_warps", config.num_warps), fmt::arg("params_bytes", sizeof(AttentionParams)),
      fmt::arg("head_dim", variant.head_dim),
      fmt::arg("smem_bytes", family.smem_bytes(config, variant.head_dim, variant.kv_layout)),
      fmt::arg("bounds", launch_bounds(variant)), fmt::arg("split", symbols.split),
      fmt::arg("layout", enumerator_of(variant.kv_layout)), fmt::arg("softcap", variant.softcap),
      fmt::arg("invariant", variant.invariant));
  if (family.splits_keys) {
    source.symbols.push_back(symbols.combine);
    source.text += fmt::format(
        kCombineText, fmt::arg("combine", symbols.combine), fmt::arg("head_dim", variant.head_dim),
        fmt::arg("invariant", variant.invariant), fmt::arg("packed", family.packs_partials));
  }
  if (family.only_arch == kWgmmaArch) source.text.insert(0, kWgmmaDefine);
  if (variant.shared_slots) source.text.insert(0, kSharedSlotsDefine);
  source.headers = embedded_headers(source.text);
  return source;
}

Source probe_source(const std::string& arch) {
  Source source;
  source.symbols = {"fill_noise", "probe_read", "probe_tensor", "copy_late"};
  source.text = fmt::format(kProbeText, fmt::arg("fill_bytes", sizeof(FillParams)),
                            fmt::arg("probe_bytes", sizeof(ProbeParams)),
                            fmt::arg("late_bytes", sizeof(LateCopyParams)));
  if (arch == kWgmmaArch) source.text.insert(0, kWgmmaDefine);
  source.headers = embedded_headers(source.text);
  return source;
}

Source prologue_source(int head_dim, KvLayout layout, bool normed) {
  if (const auto limit = prologue_limits(head_dim, layout)) {
    throw InvalidArgument("no prologue", limit->detail);
  }
  if (is_unified(layout) && !normed) {
    throw InvalidArgument("no prologue", fmt::format("layout={} without norms", name_of(layout)),
                          "unified rows hold normed values");
  }
  Source source;
  source.split_symbol =
      fmt::format("prologue_{}d{}_{}", normed ? "" : "raw_", head_dim, name_of(layout));
  std::replace(source.split_symbol.begin(), source.split_symbol.end(), '-', '_');
  source.symbols = {source.split_symbol};
  source.text = fmt::format(kPrologueText, fmt::arg("params_bytes", sizeof(PrologueParams)),
                            fmt::arg("symbol", source.split_symbol), fmt::arg("head_dim", head_dim),
                            fmt::arg("layout", enumerator_of(layout)), fmt::arg("normed", normed));
  source.headers = embedded_headers(source.text);
  return source;
}

Source state_source() {
  Source source;
  source.split_symbol = "write_state";
  source.symbols = {source.split_symbol};
  source.text = fmt::format(kStateText, fmt::arg("params_bytes", sizeof(StateParams)));
  source.headers = embedded_headers(source.text);
  return source;
}

std::vector<EmbeddedFile> embedded_headers(std::string_view text) {
  return included_files(text, find_embedded);
}

std::vector<EmbeddedFile> included_files(std::string_view text, const FindFile& find) {
  std::vector<EmbeddedFile> files;
  collect_headers(text, find, &files);
  return files;
}

Digest template_digest(const Family& family, const std::string& arch) {
  return digest_on(family.template_digest(), arch);
}

Digest prologue_digest(const std::string& arch) {
  constexpr std::array<std::string_view, 2> kEntryFiles = {"templates/prologue.cuh",
                                                           "templates/state.cuh"};
  return digest_on(template_digest_of(kEntryFiles), arch);
}

}  // namespace attune
