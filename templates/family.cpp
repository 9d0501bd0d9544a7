#include "templates/family.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "common/error.h"
#include "templates/launch_plan.h"
#include "templates/model_plan.h"
#include "templates/split_plan.h"
#include "templates/wgrows_config.h"

namespace attune {
namespace {

std::optional<Unsupported> splitkv_limits(const KernelConfig& config, int head_dim, KvLayout);
std::optional<Unsupported> tiled_limits(const KernelConfig& config, int head_dim, KvLayout);
std::optional<Unsupported> swapab_limits(const KernelConfig& config, int head_dim, KvLayout);
std::optional<Unsupported> oneround_limits(const KernelConfig& config, int head_dim,
                                           KvLayout layout);
std::optional<Unsupported> wgmma_limits(const KernelConfig& config, int head_dim, KvLayout layout);
std::optional<Unsupported> wgrows_limits(const KernelConfig& config, int head_dim, KvLayout layout);
bool tries_tile(const KernelConfig& config, int head_dim, KvLayout);
bool tries_wgrows(const KernelConfig& config, int head_dim, KvLayout);
bool tries_stream(const KernelConfig& config, int head_dim, KvLayout);
bool tries_round(const KernelConfig& config, int head_dim, KvLayout);
int streams_of_grid(const KernelConfig& config, int head_dim) {
  return stream_grid(config, head_dim).streams;
}
int stream_a_warp(const KernelConfig& config, int) { return config.num_warps; }
TensorBox no_tensor_box(const KernelConfig&, int, KvLayout) { return {}; }
// A whole tile.
TensorBox tile_box(const KernelConfig& config, int head_dim, KvLayout layout) {
  return {config.block_n, kv_row_columns(layout, head_dim) / 64};
}

// What arrives and is freed together.
TensorBox wgmma_tensor_box(const KernelConfig& config, int, KvLayout layout) {
  return {config.block_n, wgmma_box_panels(layout)};
}

constexpr std::array kFamilies = {
    Family{.name = "splitkv",
           .entry_file = "templates/splitkv.cuh",
           .entry_function = "attune::splitkv",
           .min_compute_capability = 80,
           .splits_keys = true,
           .counts_ctas = true,
           .smem_bytes = splitkv_smem_bytes,
           .template_limits = splitkv_limits,
           .is_worth_trying = tries_tile,
           .tensor_box = no_tensor_box},
    Family{.name = "tiled",
           .entry_file = "templates/tiled.cuh",
           .entry_function = "attune::tiled",
           .min_compute_capability = 80,
           .splits_keys = false,
           .smem_bytes = tiled_smem_bytes,
           .template_limits = tiled_limits,
           .is_worth_trying = tries_tile,
           .tensor_box = no_tensor_box},
    Family{.name = "swapab",
           .entry_file = "templates/swapab.cuh",
           .entry_function = "attune::swapab",
           .min_compute_capability = 90,
           .splits_keys = true,
           .most_rows = 32,
           .first_choice_from = 1,
           .first_choice_to = 16,
           .short_choice_from = 17,
           .short_choice_to = 32,
           .merges_in_clusters = true,
           .num_streams = streams_of_grid,
           .smem_bytes = swapab_smem_bytes,
           .template_limits = swapab_limits,
           .is_worth_trying = tries_stream,
           .tensor_box = tile_box},
    Family{.name = "oneround",
           .entry_file = "templates/oneround.cuh",
           .entry_function = "attune::oneround",
           .min_compute_capability = 90,
           .splits_keys = true,
           .most_rows = 16,
           .short_choice_from = 1,
           .short_choice_to = 16,
           .merges_in_clusters = true,
           .fills_sm = true,
           .num_streams = stream_a_warp,
           .smem_bytes = oneround_smem_bytes,
           .template_limits = oneround_limits,
           .is_worth_trying = tries_round,
           .tensor_box = tile_box},
    Family{.name = "wgmma",
           .entry_file = "templates/wgmma.cuh",
           .entry_function = "attune::wgmma",
           .min_compute_capability = 90,
           .only_arch = "sm_90a",
           .splits_keys = true,
           .prefills = true,
           .least_rows = 17,
           .first_choice_from = 17,
           .alone_from = 33,
           .packs_partials = true,
           .smem_bytes = wgmma_smem_bytes,
           .template_limits = wgmma_limits,
           .is_worth_trying = tries_tile,
           .tensor_box = wgmma_tensor_box},
    Family{.name = "wgrows",
           .entry_file = "templates/wgrows.cuh",
           .entry_function = "attune::wgrows",
           .min_compute_capability = 90,
           .only_arch = "sm_90a",
           .splits_keys = false,
           .prefills = true,
           .is_persistent = true,
           .smem_bytes = wgrows_smem_bytes,
           .template_limits = wgrows_limits,
           .is_worth_trying = tries_wgrows,
           .tensor_box = tile_box},
    Family{.name = kLinearFamily,
           .entry_file = "templates/linear.cuh",
           .entry_function = "attune::linear",
           .min_compute_capability = 90,
           .splits_keys = false},
    Family{.name = kExpertsFamily,
           .entry_file = "templates/experts.cuh",
           .entry_function = "attune::experts",
           .min_compute_capability = 90,
           .splits_keys = false},
};
constexpr std::size_t kNumLinearFamilies = 2;  // the last ones: linear layers, experts

const EmbeddedFile& embedded_file(std::string_view name) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name == name) return file;
  }
  throw Error("a template includes a file that is not embedded", fmt::format("file={}", name),
              "list it in templates/CMakeLists.txt");
}

// Adds `name` and every file it includes, directly or not.
void collect_includes(std::string_view name, std::set<std::string_view>* files) {
  if (!files->insert(name).second) return;
  const std::string_view text = embedded_file(name).text;
  constexpr std::string_view kInclude = "#include \"";
  for (std::size_t at = text.find(kInclude); at != std::string_view::npos;
       at = text.find(kInclude, at + 1)) {
    const std::size_t begin = at + kInclude.size();
    collect_includes(text.substr(begin, text.find('"', begin) - begin), files);
  }
}

// K slots of fewer keys leave the memory idle, of more add nothing: 64 KB in flight per SM read at
// the full rate of an H200, and at head_dim 256 that is 64 keys of K and V.
constexpr int kMinKeysInFlight = 32;
constexpr int kMaxKeysInFlight = 128;
// Of the streams' slots together: half of them are under way, and 64 KB read at the full rate.
constexpr int kMinBytesInFlight = 96 << 10;
constexpr int kMaxStreamWarps = 8;
// A block of more rows is work for a family that reads a tile once for many of them. Beside 128
// accumulators a thread has registers for the queries and the state of 16 rows, not of 32.
constexpr int kMaxStreamBlockM = 32;
constexpr int kMaxStreamAccumulators = 128;
constexpr int kMaxFullWarpRows = 16;
constexpr int kMaxStreamBlockN = 32;
// Of the slots of a kernel whose warps share the keys of a round: what a CTA can have under way
// before its queries are there. Queries and accumulators of a thread beside 60 other registers.
constexpr int kMinRoundBytes = 112 << 10;
constexpr int kMaxRoundBytes = 208 << 10;
constexpr int kMaxRoundRegisters = 192;
constexpr int kMaxRoundKeys = 128;
// Scores that a thread holds beside its output accumulators.
constexpr int kMaxScoresPerThread = 64;

// Reads "<letter><number>" at the front of `text` and drops it.
std::optional<int> take_field(char letter, std::string_view* text) {
  if (text->empty() || text->front() != letter) return std::nullopt;
  std::size_t end = 1;
  while (end < text->size() && (*text)[end] >= '0' && (*text)[end] <= '9') ++end;
  const auto value = parse_int(text->substr(1, end - 1));
  if (!value || *value > 1 << 20) return std::nullopt;
  text->remove_prefix(end);
  return static_cast<int>(*value);
}

[[noreturn]] void bad_text(std::string_view what, std::string_view text, std::string_view form) {
  throw InvalidArgument(fmt::format("cannot read the {}", what), fmt::format("'{}'", text),
                        fmt::format("the form is {}", form));
}

constexpr std::string_view kConfigForm = "m<BLOCK_M>n<BLOCK_N>s<stages>w<warps>";
constexpr std::string_view kCandidateForm = "<family>/m<BLOCK_M>n<BLOCK_N>s<stages>w<warps>/x<cap>";
constexpr std::string_view kVariantForm =
    "<family>/d<head_dim>/<layout>/<dtype>[/softcap][/invariant][/shared]/"
    "m<BLOCK_M>n<BLOCK_N>s<stages>w<warps>, or linear/<weights>/<epilogue>/"
    "m<BLOCK_M>n<BLOCK_N>s<stages>w<warps>, with experts in place of linear for those";

// Packed rows of an invariant prefill: its partial results take a row of every chunk.
constexpr int kMaxInvariantRows = 512;

std::optional<Unsupported> splitkv_limits(const KernelConfig& config, int head_dim, KvLayout) {
  if (score_warp_grid(config).rows == 0) {
    return Unsupported{fmt::format("{} warps do not divide a {}x{} score tile", config.num_warps,
                                   config.block_m, config.block_n)};
  }
  const int columns = head_dim / config.num_warps;
  if (columns % kOutputColumnsPerWarp != 0 || columns == 0) {
    return Unsupported{fmt::format("head_dim={} over num_warps={} is no multiple of {} columns",
                                   head_dim, config.num_warps, kOutputColumnsPerWarp)};
  }
  return std::nullopt;
}

// Of the tiles of device/stream_tiles.cuh.
std::optional<Unsupported> stream_tile_limits(const KernelConfig& config, KvLayout layout) {
  if (config.block_n % kMmaRows != 0 || config.block_n > kMaxStreamBlockN) {
    return Unsupported{fmt::format("block_n={}: a stream's tile has 16 or {} keys", config.block_n,
                                   kMaxStreamBlockN)};
  }
  if (is_paged(layout) && config.block_n != kMinPageSize) {
    return Unsupported{
        fmt::format("block_n={}: a copy of {} keys lies in one page whatever its "
                    "size is",
                    config.block_n, kMinPageSize)};
  }
  return std::nullopt;
}

std::optional<Unsupported> swapab_limits(const KernelConfig& config, int head_dim,
                                         KvLayout layout) {
  const StreamGrid grid = stream_grid(config, head_dim);
  if (grid.streams == 0) {
    return Unsupported{fmt::format("{} warps over {} rows of head_dim={}: a warp owns {} rows",
                                   config.num_warps, config.block_m, head_dim, 4096 / head_dim)};
  }
  if (config.num_warps > kMaxStreamWarps) {
    return Unsupported{fmt::format("num_warps={}: {} have 255 registers a thread", config.num_warps,
                                   kMaxStreamWarps)};
  }
  if (auto limit = stream_tile_limits(config, layout)) return limit;
  if (grid.row_groups > 1 && config.num_stages < 2) {
    return Unsupported{fmt::format("{} warps share a stream: they need 2 stages", grid.row_groups)};
  }
  return std::nullopt;
}

// A warp's step is short beside the wait for its tile: what counts is the bytes in flight.
bool tries_stream(const KernelConfig& config, int head_dim, KvLayout layout) {
  const StreamGrid grid = stream_grid(config, head_dim);
  const int bytes = grid.streams * config.num_stages * kv_stage_elements(config, head_dim, layout) *
                    kBytesPerElement;
  const bool has_registers = grid.warp_rows <= kMaxFullWarpRows ||
                             grid.warp_rows * head_dim < kMaxStreamAccumulators * kWarpSize;
  return config.block_m <= kMaxStreamBlockM && has_registers && config.num_warps >= 4 &&
         bytes >= kMinBytesInFlight;
}

std::optional<Unsupported> oneround_limits(const KernelConfig& config, int head_dim,
                                           KvLayout layout) {
  if (config.block_m != kMmaTokens && config.block_m != 2 * kMmaTokens) {
    return Unsupported{fmt::format("block_m={}: every warp holds all rows, {} or {}",
                                   config.block_m, kMmaTokens, 2 * kMmaTokens)};
  }
  if (config.num_warps % 2 != 0 || config.num_warps > kMaxStreamWarps ||
      head_dim % (config.num_warps * kMmaRows) != 0) {
    return Unsupported{
        fmt::format("num_warps={}: 2 to {} share the columns of head_dim={}, each a "
                    "multiple of {}",
                    config.num_warps, kMaxStreamWarps, head_dim, kMmaRows)};
  }
  return stream_tile_limits(config, layout);
}

// In one round, or in few: slots for all that a split of a short context has. A thread's queries and
// accumulators leave registers for the rest.
bool tries_round(const KernelConfig& config, int head_dim, KvLayout layout) {
  const int bytes = config.num_warps * config.num_stages *
                    kv_stage_elements(config, head_dim, layout) * kBytesPerElement;
  const int queries = config.block_m * head_dim / (2 * kWarpSize);
  const int accumulators =
      config.block_m * (head_dim / config.num_warps + config.block_n) / kWarpSize;
  return config.num_warps >= 4 && config.num_warps * config.block_n <= kMaxRoundKeys &&
         queries + accumulators <= kMaxRoundRegisters && bytes >= kMinRoundBytes &&
         bytes <= kMaxRoundBytes;
}

bool tries_tile(const KernelConfig& config, int, KvLayout) {
  const int keys_in_flight = config.block_n * config.num_stages;
  if (keys_in_flight < kMinKeysInFlight || keys_in_flight > kMaxKeysInFlight) return false;
  return config.block_m * config.block_n <= kMaxScoresPerThread * config.num_warps * kWarpSize;
}

// The same; but pages of 32 rows have tiles of 32 keys.
bool tries_wgrows(const KernelConfig& config, int head_dim, KvLayout layout) {
  return tries_tile(config, head_dim, layout) && config.block_n * config.num_stages == 128 &&
         (config.block_n == 64 || is_paged(layout));
}

std::optional<Unsupported> tiled_limits(const KernelConfig& config, int head_dim, KvLayout) {
  const auto is_power_of_two = [](int value) { return (value & (value - 1)) == 0; };
  if (!is_power_of_two(config.block_n) || !is_power_of_two(config.num_warps)) {
    return Unsupported{fmt::format("block_n={} and num_warps={} are powers of two", config.block_n,
                                   config.num_warps)};
  }
  const int column_groups = tiled_warp_grid(config).tokens;
  if (column_groups == 0) {
    return Unsupported{
        fmt::format("{} warps over {} rows: 1, 2 or {} may share 16 or 32 rows, each "
                    "16 tokens of {} or more",
                    config.num_warps, config.block_m, kMaxColumnGroups, config.block_n)};
  }
  if (head_dim / column_groups % kOutputColumnsPerWarp != 0) {
    return Unsupported{fmt::format("head_dim={} over {} warps is no multiple of {} columns",
                                   head_dim, column_groups, kOutputColumnsPerWarp)};
  }
  if (config.num_warps * kWarpSize * 8 % head_dim != 0) {
    return Unsupported{fmt::format("{} threads copy no whole rows of head_dim={}",
                                   config.num_warps * kWarpSize, head_dim)};
  }
  return std::nullopt;
}

std::optional<Unsupported> wgmma_limits(const KernelConfig& config, int head_dim, KvLayout layout) {
  if (head_dim != kWgmmaHeadDim) {
    return Unsupported{fmt::format("head_dim={}: two warpgroups share the {} columns of an output",
                                   head_dim, kWgmmaHeadDim)};
  }
  if (config.block_m != kWgmmaBlockM || config.num_warps != kWgmmaWarps) {
    return Unsupported{
        fmt::format("block_m={} num_warps={}: a producer and two consumer "
                    "warpgroups work on {} rows with {} warps",
                    config.block_m, config.num_warps, kWgmmaBlockM, kWgmmaWarps)};
  }
  if (config.block_n != 32 && config.block_n != 64) {
    return Unsupported{fmt::format("block_n={}: P is one panel of 32 or 64 keys", config.block_n)};
  }
  if (layout == KvLayout::kRing) {
    return Unsupported{"a box of rows does not wrap at the end of a ring"};
  }
  if (is_unified(layout) && config.num_stages < 2) {
    return Unsupported{"num_stages=1: the scores of a unified tile run ahead of its values"};
  }
  return std::nullopt;
}

std::optional<Unsupported> wgrows_limits(const KernelConfig& config, int head_dim, KvLayout) {
  if (head_dim != kWgrowsHeadDim) {
    return Unsupported{fmt::format("head_dim={}: a warpgroup holds {} columns of 64 rows", head_dim,
                                   kWgrowsHeadDim)};
  }
  if (config.block_m != kWgrowsBlockM || config.num_warps != kWgrowsWarps) {
    return Unsupported{
        fmt::format("block_m={} num_warps={}: a producer and two consumer warpgroups of 64 rows "
                    "each have {} rows and {} warps",
                    config.block_m, config.num_warps, kWgrowsBlockM, kWgrowsWarps)};
  }
  if (config.block_n != 32 && config.block_n != 64) {
    return Unsupported{fmt::format(
        "block_n={}: scores of 32 or 64 keys have room beside the output", config.block_n)};
  }
  if (config.num_stages < 2) {
    return Unsupported{"num_stages=1: the scores of a tile run ahead of its values"};
  }
  return std::nullopt;
}

// Every number of rows and stages with which some device reads at its full rate.
std::vector<KernelConfig> linear_configs(int tokens, LinearWeights weights) {
  std::vector<KernelConfig> all;
  for (const int block_n : {16, 32, 48, 64, 80, 96, 128}) {
    for (int num_stages = 1; num_stages <= 8; ++num_stages) {
      all.push_back(
          {linear_token_block(tokens, weights), block_n, num_stages, linear_warps(weights)});
    }
  }
  return all;
}

std::optional<Unsupported> linear_problem_limits(const Problem& problem,
                                                 const KernelConfig& config) {
  if (config.block_m != linear_token_block(problem.linear_tokens, problem.linear.weights)) {
    return Unsupported{fmt::format("block_m={}: the layer is one of up to {} tokens",
                                   config.block_m, problem.linear_tokens)};
  }
  return linear_limits(problem.linear, config);
}

Variant parse_linear_variant(std::string_view text, const std::vector<std::string_view>& parts) {
  if (parts.size() != 4) bad_text("variant", text, kVariantForm);
  Variant variant;
  variant.family = parts[0];
  if (parts[1] == name_of(LinearWeights::kInt4)) variant.weights = LinearWeights::kInt4;
  for (const LinearEpilogue epilogue :
       {LinearEpilogue::kGeglu, LinearEpilogue::kSwiglu, LinearEpilogue::kLogits}) {
    if (parts[2] == name_of(epilogue)) variant.epilogue = epilogue;
  }
  variant.config = parse_config(parts[3]);
  if (variant.text() != text) bad_text("variant", text, kVariantForm);
  return variant;
}

}  // namespace

std::string text_of(const KernelConfig& config) {
  return fmt::format("m{}n{}s{}w{}", config.block_m, config.block_n, config.num_stages,
                     config.num_warps);
}

KernelConfig parse_config(std::string_view text) {
  std::string_view rest = text;
  const auto block_m = take_field('m', &rest);
  const auto block_n = take_field('n', &rest);
  const auto num_stages = take_field('s', &rest);
  const auto num_warps = take_field('w', &rest);
  if (!block_m || !block_n || !num_stages || !num_warps || !rest.empty()) {
    bad_text("kernel config", text, kConfigForm);
  }
  const KernelConfig config{*block_m, *block_n, *num_stages, *num_warps};
  if (text_of(config) != text) bad_text("kernel config", text, kConfigForm);
  return config;
}

std::string Variant::text() const {
  if (is_linear()) {
    return fmt::format("{}/{}/{}/{}", family, name_of(weights), name_of(epilogue), text_of(config));
  }
  return fmt::format("{}/d{}/{}/{}{}{}{}/{}", family, head_dim, name_of(kv_layout), name_of(dtype),
                     softcap ? "/softcap" : "", invariant ? "/invariant" : "",
                     shared_slots ? "/shared" : "", text_of(config));
}

Variant Variant::parse(std::string_view text) {
  const auto parts = split(text, '/');
  if (is_linear_family(parts.front())) return parse_linear_variant(text, parts);
  if (parts.size() < 5 || parts.size() > 8) bad_text("variant", text, kVariantForm);
  Variant variant;
  variant.family = parts[0];
  std::string_view head_dim = parts[1];
  variant.head_dim = take_field('d', &head_dim).value_or(0);
  for (const KvLayout layout : kKvLayouts) {
    if (parts[2] == name_of(layout)) variant.kv_layout = layout;
  }
  const auto is_on = [&](std::string_view word) {
    return std::find(parts.begin() + 4, parts.end() - 1, word) != parts.end() - 1;
  };
  variant.softcap = is_on("softcap");
  variant.invariant = is_on("invariant");
  variant.shared_slots = is_on("shared");
  variant.config = parse_config(parts.back());
  if (variant.text() != text) bad_text("variant", text, kVariantForm);
  return variant;
}

std::string Candidate::text() const {
  return fmt::format("{}/{}/x{}", family, text_of(config), split_cap);
}

Candidate Candidate::parse(std::string_view text) {
  const auto parts = split(text, '/');
  if (parts.size() != 3) bad_text("candidate", text, kCandidateForm);
  Candidate candidate;
  candidate.family = parts[0];
  candidate.config = parse_config(parts[1]);
  std::string_view cap = parts[2];
  candidate.split_cap = take_field('x', &cap).value_or(0);
  if (candidate.split_cap < 1 || candidate.text() != text) {
    bad_text("candidate", text, kCandidateForm);
  }
  return candidate;
}

Variant Candidate::variant(const Problem& problem) const {
  if (problem.is_linear()) {
    return {.family = family,
            .config = config,
            .epilogue = problem.linear.epilogue,
            .weights = problem.linear.weights};
  }
  return {family,
          problem.head_dim,
          problem.kv_layout,
          problem.softcap,
          problem.invariant,
          problem.dtype,
          config,
          shares_slots(problem, *this)};
}

std::vector<KernelConfig> Family::configs(const Problem& problem) const {
  return is_linear() ? linear_configs(problem.linear_tokens, problem.linear.weights)
                     : configs(problem.head_dim, problem.kv_layout);
}

int Family::smem_bytes_of(const Problem& problem, const KernelConfig& config) const {
  return is_linear() ? linear_smem_bytes(problem.linear, config)
                     : smem_bytes(config, problem.head_dim, problem.kv_layout);
}

std::vector<KernelConfig> Family::configs(int head_dim, KvLayout layout) const {
  std::vector<KernelConfig> all;
  for (const int block_m : {8, 16, 32, 64, 128}) {
    for (const int block_n : {16, 32, 64, 128}) {
      for (const int num_stages : {1, 2, 3, 4}) {
        for (const int num_warps : {2, 4, 8, 12, 16}) {
          const KernelConfig config{block_m, block_n, num_stages, num_warps};
          if (!static_limits(config, head_dim, layout) &&
              is_worth_trying(config, head_dim, layout)) {
            all.push_back(config);
          }
        }
      }
    }
  }
  return all;
}

std::optional<Unsupported> Family::static_limits(const KernelConfig& config, int head_dim,
                                                 KvLayout layout) const {
  constexpr int kLargest = 1 << 10;  // of any field: sizes computed from it stay far inside an int
  for (const int field : {config.block_m, config.block_n, config.num_stages, config.num_warps}) {
    if (field < 1 || field > kLargest) {
      return Unsupported{fmt::format("{}: every number is 1 to {}", text_of(config), kLargest)};
    }
  }
  if (config.block_m > config.num_warps * kWarpSize) {
    return Unsupported{fmt::format("block_m={} is above the {} threads that describe its rows",
                                   config.block_m, config.num_warps * kWarpSize)};
  }
  if (config.block_n > kMinRingCapacity) {
    return Unsupported{fmt::format("block_n={} is above the shortest ring, {} rows", config.block_n,
                                   kMinRingCapacity)};
  }
  if (is_unified(layout) && head_dim != kUnifiedHeadDim) {
    return Unsupported{
        fmt::format("head_dim={}: unified rows are defined for {}", head_dim, kUnifiedHeadDim)};
  }
  return template_limits(config, head_dim, layout);
}

std::optional<Unsupported> Family::supports(const Problem& problem,
                                            const KernelConfig& config) const {
  const bool is_of_experts = name == kExpertsFamily;
  if (is_linear() != problem.is_linear() || is_of_experts != problem.linear.is_experts()) {
    return Unsupported{fmt::format("op={}: {} is a family of {}", name_of(problem.op), name,
                                   is_of_experts ? "experts"
                                   : is_linear() ? "linear layers"
                                                 : "attention")};
  }
  if (is_linear()) return linear_problem_limits(problem, config);
  if (!splits_keys && problem.op != Op::kPrefill) {
    return Unsupported{fmt::format("{} has no use for the CTAs that few rows leave idle", name)};
  }
  if (problem.invariant && !splits_keys) {
    return Unsupported{fmt::format("{} sums a row's keys up in one go, not in chunks", name)};
  }
  if (problem.invariant && tensor_box(config, problem.head_dim, problem.kv_layout).rows > 0) {
    return Unsupported{fmt::format("the sums of {} depend on its config", name)};
  }
  if (problem.window > 0 && is_paged(problem.kv_layout) &&
      tensor_box(config, problem.head_dim, problem.kv_layout).rows > 0) {
    return Unsupported{
        fmt::format("window={}: its tiles would begin inside of pages and end in "
                    "others",
                    problem.window)};
  }
  const int box_rows = tensor_box(config, problem.head_dim, problem.kv_layout).rows;
  if (is_paged(problem.kv_layout) && box_rows > problem.page_size) {
    return Unsupported{fmt::format("block_n={}: a tile is one box and lies in one page of {} rows",
                                   box_rows, problem.page_size)};
  }
  const bool is_prefill = problem.op == Op::kPrefill;
  const int fewest_rows = is_prefill && prefills ? 1 : least_rows;
  const bool has_op = box_rows == 0 || prefills || !is_prefill;
  if (box_rows > 0 &&
      (!has_op || problem.num_rows() < fewest_rows || problem.num_rows() > most_rows)) {
    return Unsupported{fmt::format("rows={}: {} is made for {} of {} to {}", problem.num_rows(),
                                   name, has_op && is_prefill ? "prefills" : "steps", fewest_rows,
                                   most_rows)};
  }
  if (problem.invariant && config.block_n != invariant_block_n(problem.head_dim)) {
    return Unsupported{fmt::format("block_n={}: an invariant row is summed up in tiles of {}",
                                   config.block_n, invariant_block_n(problem.head_dim))};
  }
  if (problem.invariant && problem.num_rows() > kMaxInvariantRows) {
    return Unsupported{fmt::format("rows={}: invariant partial results take at most {} rows",
                                   problem.num_rows(), kMaxInvariantRows)};
  }
  return static_limits(config, problem.head_dim, problem.kv_layout);
}

Digest Family::template_digest() const {
  const std::array<std::string_view, 2> entry_files = {entry_file, "templates/combine.cuh"};
  return template_digest_of(std::span(entry_files).first(splits_keys ? 2 : 1));
}

Digest template_digest_of(std::span<const std::string_view> entry_files) {
  std::set<std::string_view> files;
  for (const std::string_view entry : entry_files) collect_includes(entry, &files);
  std::string all;
  for (const std::string_view file : files) {
    all += fmt::format("{}:{}\n", file, digest_of(embedded_file(file).text).text());
  }
  return digest_of(all);
}

std::span<const Family> families() { return kFamilies; }

std::span<const Family> families_of(Op op) {
  const std::span<const Family> all = kFamilies;
  const auto of_linear = all.last(kNumLinearFamilies);
  if (op == Op::kLinear) return of_linear.first(1);
  if (op == Op::kExperts) return of_linear.last(1);
  return all.first(all.size() - kNumLinearFamilies);
}

const Family* find_family(std::string_view name) {
  for (const Family& family : kFamilies) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

const Family& known_family(std::string_view name) {
  if (const Family* family = find_family(name)) return *family;
  std::string known;
  for (const Family& family : kFamilies) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.name);
  }
  throw InvalidArgument("unknown kernel family", fmt::format("'{}'", name),
                        fmt::format("the families are {}", known));
}

}  // namespace attune
