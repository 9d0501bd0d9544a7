// default_candidate: what is picked without measuring.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "common/error.h"
#include "tuner/linear_space.h"
#include "tuner/space.h"
#include "tuner/space_parts.h"

namespace attune {
namespace {

// K/V slots of the default candidate: 64 KB in flight per SM is enough for the full read bandwidth
// of an H200, and as much again is being computed on.
constexpr int kDefaultKvBytes = 128 << 10;
// A tile of 64 keys reads the queries from shared memory half as often as one of 32.
constexpr int kDefaultBlockN = 64;
constexpr int kDefaultWarps = 8;
// Rows of a prefill tile that feed the tensor cores well.
constexpr int kDefaultPrefillBlockM = 64;
constexpr int kMostRegisters = 255;  // of a thread
// A step that sees no more keys ends as soon as it has begun: what has least to do at its end is
// fastest [h200].
constexpr int kFewKeys = 1024;

int kv_slot_bytes(const Family& family, const KernelConfig& config, const Problem& problem) {
  if (family.has_slices) {
    return config.num_stages * config.block_n * kSliceColumns * kBytesPerElement;
  }
  const int streams = family.num_streams ? family.num_streams(config, problem.head_dim) : 1;
  return streams * config.num_stages *
         kv_stage_elements(config, problem.head_dim, problem.kv_layout) * kBytesPerElement;
}

// |log2(a / b)| of powers of two and near them, in half steps: an order of preference as an int.
int distance(int a, int b) {
  int steps = 0;
  for (int low = std::min(a, b), high = std::max(a, b); 2 * low <= high; low *= 2) ++steps;
  return steps;
}

std::string table_of_reasons(const std::vector<PrunedCandidate>& pruned) {
  std::map<std::string_view, std::pair<int, std::string>> reasons;
  for (const PrunedCandidate& one : pruned) {
    auto& [count, example] = reasons[name_of(one.rejection.reason)];
    if (count++ == 0) example = text_of(one.candidate.config) + ": " + one.rejection.detail;
  }
  std::string text;
  for (const auto& [reason, entry] : reasons) {
    text +=
        fmt::format("{}{} x{} ({})", text.empty() ? "" : ", ", reason, entry.first, entry.second);
  }
  return text;
}

// Throws where a family that is off could have computed the problem.
void refuse_if_only_disabled(const Problem& problem, const DeviceInfo& device,
                             std::span<const std::string> disabled) {
  if (disabled.empty() || candidate_space(problem, device).kept.empty()) return;
  throw InvalidArgument(
      "only kernel families that are switched off can compute the problem",
      fmt::format("problem={} disabled_families={}", problem.text(), fmt::join(disabled, ",")),
      "switch one of them on");
}

bool has_few_keys(const Problem& problem) {
  return problem.window == 0 && max_visible_keys(problem) <= kFewKeys;
}

// For few keys a cluster, with enough CTAs for all of them to be under way at once; else what fills the
// device once. Not for a window: where its ring begins again inside of a tile, which is one more then,
// a quarter of the keys takes a round more (9.6 against 8.1 us for 4 tokens [h200]).
int default_split_cap(const Problem& problem, const Family& family, const KernelConfig& config,
                      const DeviceInfo& device) {
  const std::vector<int> caps = split_caps(problem, family, config, device);
  const int row_blocks = ceil_div(problem.num_rows(), config.block_m);
  const auto clusters = [&](int cap) { return merges_in_cluster(family, row_blocks, cap); };
  if (has_few_keys(problem) && std::any_of(caps.begin(), caps.end(), clusters)) {
    const int bytes = kv_slot_bytes(family, config, problem);
    const int keys =
        bytes / (kv_stage_elements({config.block_m, 1, 1, 1}, problem.head_dim, problem.kv_layout) *
                 kBytesPerElement);
    const int enough = ceil_div(max_visible_keys(problem), keys);
    int best = 1;
    for (const int cap : caps) {
      if (!clusters(cap)) continue;
      const bool is_better = best < enough ? cap > best : cap >= enough && cap < best;
      if (is_better) best = cap;
    }
    return best;
  }
  return caps.front();
}

}  // namespace

Candidate default_candidate(const Problem& problem, const DeviceInfo& device,
                            std::span<const std::string> disabled) {
  const CandidateSpace space = candidate_space(problem, device, disabled);
  if (space.kept.empty()) refuse_if_only_disabled(problem, device, disabled);
  if (space.kept.empty()) {
    throw InvalidArgument("no kernel can compute the problem on this device",
                          fmt::format("{} on {} ({}): {}", problem.text(), device.name, device.arch,
                                      table_of_reasons(space.pruned)),
                          problem.is_linear()
                              ? "use bf16 weights, or a GPU of sm_90 or later"
                              : "use a device with more shared memory, or a smaller head_dim or "
                                "seqlen_q");
  }
  if (problem.is_linear()) return default_linear_candidate(problem, device);
  const int rows = problem.num_rows();
  // Smaller is better, from left to right; the config itself makes the order total.
  const auto rank = [&](const Candidate& candidate) {
    const KernelConfig& config = candidate.config;
    const Family& family = known_family(candidate.family);
    const int caps_first = default_split_cap(problem, family, config, device);
    // Neighbours that share their reads cost less than rows that share a stream: row blocks of 8
    // are 15 to 25% faster than one of 16 [h200].
    const int row_blocks = family.num_streams ? 1 : ceil_div(rows, config.block_m);
    const int kv_bytes = distance(kv_slot_bytes(family, config, problem), kDefaultKvBytes);
    // They keep in step with small tiles (6.4 against 7.5 us at 1024 keys and two tokens, 44.5 against
    // 48.9 at 32768 [h200]).
    const bool are_neighbours = family.num_streams && problem.window == 0 && rows > config.block_m;
    const int block_n = distance(config.block_n, are_neighbours ? kMmaRows : kDefaultBlockN);
    const int warps =
        distance(config.num_warps, are_neighbours ? kDefaultWarps / 2 : kDefaultWarps);
    const int cap = std::abs(candidate.split_cap - caps_first);
    // Its config and its CTAs per SM decide how fast a family of mma.sync tiles is.
    if (family.splits_keys || family.prefills) {
      const bool is_first = rows >= family.first_choice_from && rows <= family.first_choice_to;
      const bool is_short = rows >= family.short_choice_from && rows <= family.short_choice_to;
      const bool is_of_prefills = problem.op == Op::kPrefill && family.prefills;
      const bool is_of_few = has_few_keys(problem) && is_short;
      const int choice = is_of_prefills ? -1 : is_of_few ? 0 : is_first ? 1 : 2;
      return std::make_tuple(choice, row_blocks, config.block_m, kv_bytes, block_n, warps, cap,
                             config.block_n, config.num_stages, config.num_warps);
    }
    // It is bound by the tensor cores and by what feeds them from shared memory: the sides of a
    // tile come first, then a second CTA on the SM, whose products fill the other's waits (4% at
    // head_dim 256 [h200]), then the copies under way.
    const int sides = 1024 / std::min(config.block_m, kDefaultPrefillBlockM) +
                      1024 / std::min(config.block_n, kDefaultBlockN);
    const bool is_paired =
        fits_per_sm(2, problem, family, config, device) &&
        2 * config.num_warps * kWarpSize * kMostRegisters <= device.registers_per_sm;
    // Whole tiles are what was measured; but unified ones in one slot come when nothing else runs.
    const bool in_place = is_unified(problem.kv_layout) && config.num_stages == 1;
    const int arrival = family.has_slices ? 1 : in_place ? 2 : 0;
    return std::make_tuple(0, sides, 2 * arrival + (is_paired ? 0 : 1), row_blocks, block_n,
                           kv_bytes, warps, config.block_n, -config.num_stages, config.num_warps);
  };
  return *std::min_element(
      space.kept.begin(), space.kept.end(),
      [&](const Candidate& a, const Candidate& b) { return rank(a) < rank(b); });
}

}  // namespace attune
