// The catalogue of kernel families: what each can compute, its configs and the text of its
// template.
#pragma once

#include <compare>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/text.h"
#include "templates/config.h"
#include "templates/problem.h"

namespace attune {

// Lexicographic, for ordered containers and stable listings. Not in config.h: NVRTC has no
// <compare>.
constexpr auto operator<=>(const KernelConfig& a, const KernelConfig& b) {
  if (const auto order = a.block_m <=> b.block_m; order != 0) return order;
  if (const auto order = a.block_n <=> b.block_n; order != 0) return order;
  if (const auto order = a.num_stages <=> b.num_stages; order != 0) return order;
  return a.num_warps <=> b.num_warps;
}

// The families of linear layers and of those of experts; all others compute attention.
constexpr std::string_view kLinearFamily = "linear";
constexpr std::string_view kExpertsFamily = "experts";
constexpr bool is_linear_family(std::string_view name) {
  return name == kLinearFamily || name == kExpertsFamily;
}

// All compile-time arguments of a kernel: two problems with equal variants share one binary.
struct Variant {
  std::string family;
  int head_dim = 0;
  KvLayout kv_layout = KvLayout::kContiguous;
  bool softcap = false;
  bool invariant = false;
  DataType dtype = DataType::kBf16;
  KernelConfig config{};
  bool shared_slots = false;  // shares_slots (launch_plan.h)
  // Of linear layers and experts, which have the config alone in common with attention.
  LinearEpilogue epilogue = LinearEpilogue::kStore;
  LinearWeights weights = LinearWeights::kBf16;

  bool is_linear() const { return is_linear_family(family); }
  // "splitkv/d512/contiguous/bf16/m16n64s2w8", with "/softcap", "/invariant" and "/shared" before the
  // config when they are on; "linear/int4/geglu/m8n48s2w8", and "experts/..." alike.
  std::string text() const;
  static Variant parse(std::string_view text);
  friend auto operator<=>(const Variant&, const Variant&) = default;
};

// Of every number in a text, and of a field of a config that a template is made of: sizes computed from
// them stay inside an int.
constexpr int kMaxTextNumber = 1 << 20;
constexpr int kMaxConfigField = 1 << 10;

// family + config + split cap (1 to kMaxTextNumber): one way to solve a problem. Text form "splitkv/m16n64s2w8/x33".
struct Candidate {
  std::string family;
  KernelConfig config{};
  int split_cap = 1;

  std::string text() const;
  static Candidate parse(std::string_view text);
  Variant variant(const Problem& problem) const;
  friend auto operator<=>(const Candidate&, const Candidate&) = default;
};

// "m16n64s2w8"
std::string text_of(const KernelConfig& config);
KernelConfig parse_config(std::string_view text);

// Why a family refuses a problem or a config, in words with the numbers in it.
struct Unsupported {
  std::string detail;
};

// What one bulk copy of K/V rows brings: `rows` x `panels` * 64 columns.
struct TensorBox {
  int rows = 0;  // 0: the family copies without tensor maps
  int panels = 0;
};

constexpr int kAnyRows = 1 << 30;

struct Family {
  std::string_view name;
  std::string_view entry_file;      // "templates/splitkv.cuh"
  std::string_view entry_function;  // "attune::splitkv"
  int min_compute_capability;       // 80 for sm_80
  std::string_view only_arch = "";  // "sm_90a" where later ones lack an instruction; else empty
  bool splits_keys;                 // its CTAs share a row's keys, and a combine merges them
  bool prefills = false;            // copies with tensor maps, and is the first choice for prefills
  // A CTA works on one row block after another: Candidate::split_cap is the most CTAs of a launch.
  bool is_persistent = false;
  // Packed rows of a KV head that it is made for, those for which it is the first choice, and from
  // how many on nothing else has been as fast where it runs [h200]; prefill apart.
  int least_rows = 1, most_rows = kAnyRows;
  int first_choice_from = kAnyRows, first_choice_to = kAnyRows;
  int short_choice_from = kAnyRows, short_choice_to = kAnyRows;  // of few keys
  int alone_from = kAnyRows;
  bool packs_partials = false;      // its partial rows are packed (config.h)
  bool merges_in_clusters = false;  // where the splits are few, a cluster does without a combine
  bool counts_ctas = false;  // ptxas is told where one CTA alone finds shared memory on an SM
  bool has_slices = false;   // its slots hold slices of kSliceColumns columns of K or V (config.h)
  bool fills_sm = false;     // has a use for all shared memory: its registers need not leave room
                             // for a second CTA
  // Streams of tiles in a CTA (device/stream_tiles.cuh), num_stages slots each; null: it has none.
  int (*num_streams)(const KernelConfig& config, int head_dim) = nullptr;
  // What follows is of attention alone.
  // Dynamic shared memory of a CTA.
  int (*smem_bytes)(const KernelConfig& config, int head_dim, KvLayout layout) = nullptr;
  // What the template's static_asserts state beyond the limits that all families share.
  std::optional<Unsupported> (*template_limits)(const KernelConfig& config, int head_dim,
                                                KvLayout layout) = nullptr;
  // Whether a config is in the space that is searched; those that are not run all the same.
  bool (*is_worth_trying)(const KernelConfig& config, int head_dim, KvLayout layout) = nullptr;
  TensorBox (*tensor_box)(const KernelConfig& config, int head_dim, KvLayout layout) = nullptr;

  bool is_linear() const { return is_linear_family(name); }
  // Of whatever the family computes.
  std::vector<KernelConfig> configs(const Problem& problem) const;
  int smem_bytes_of(const Problem& problem, const KernelConfig& config) const;

  // Configs that the template can be instantiated with, before any device limit.
  std::vector<KernelConfig> configs(int head_dim, KvLayout layout) const;
  // Whether the template's own static limits admit this problem and config.
  std::optional<Unsupported> supports(const Problem& problem, const KernelConfig& config) const;
  // Whether the template can be instantiated at all: the limits its static_asserts state.
  std::optional<Unsupported> static_limits(const KernelConfig& config, int head_dim,
                                           KvLayout layout) const;
  // Digest of the template, of the combine where it has one and of every file they include, by
  // content.
  Digest template_digest() const;
};

std::span<const Family> families();
// Those that compute attention, linear layers, or experts.
std::span<const Family> families_of(Op op);
// nullptr when there is no family of that name.
const Family* find_family(std::string_view name);
// Throws InvalidArgument when there is no family of that name.
const Family& known_family(std::string_view name);

// A file of templates/ embedded in the library at build time.
struct EmbeddedFile {
  std::string_view name;  // "templates/device/ptx.cuh"
  std::string_view text;
};
std::span<const EmbeddedFile> embedded_files();

// Digest of these embedded files and of every file they include, by content.
Digest template_digest_of(std::span<const std::string_view> entry_files);

}  // namespace attune
