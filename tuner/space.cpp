#include "tuner/space.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/compiler.h"
#include "jit/host/host_target.h"
#include "templates/launch_plan.h"
#include "templates/split_plan.h"
#include "tuner/linear_space.h"

namespace attune {
namespace {

// Shared memory that the driver keeps for itself, per resident CTA.
constexpr int kReservedSmemBytes = 1024;
constexpr int kThreadsPerSm = 2048;
// More row blocks read K/V that many times through L2; dropped where a larger BLOCK_M runs.
constexpr int kMaxRowBlocks = 4;
// Registers are handed to a warp in units of this many.
constexpr int kRegisterUnit = 256;

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

int ceil_div(int a, int b) { return (a + b - 1) / b; }

int kv_slot_bytes(const Family& family, const KernelConfig& config, const Problem& problem) {
  const int streams = family.num_streams ? family.num_streams(config, problem.head_dim) : 1;
  return streams * config.num_stages *
         kv_stage_elements(config, problem.head_dim, problem.kv_layout) * kBytesPerElement;
}

// Keys that one sequence of the largest kv_len of the problem reads.
int max_visible_keys(const Problem& problem) {
  const KeyRange keys = visible_keys(problem.kv.max, problem.seqlen_q, 0, problem.seqlen_q - 1,
                                     problem.window, problem.causal ? 1 : 0);
  return keys.end - keys.begin;
}

// Whether `count` CTAs of this config fit on one SM by shared memory and threads. A core of the
// host device runs one at a time.
bool fits_per_sm(int count, const Problem& problem, const Family& family,
                 const KernelConfig& config, const DeviceInfo& device) {
  if (is_host_arch(device.arch)) return count == 1;
  const int smem_bytes =
      family.smem_bytes(config, problem.head_dim, problem.kv_layout) + kReservedSmemBytes;
  return count * smem_bytes <= device.smem_per_sm_bytes &&
         count * config.num_warps * kWarpSize <= kThreadsPerSm;
}

struct Survivor {
  const Family* family;
  KernelConfig config;
};

void drop(const Survivor& survivor, Rejection rejection, CandidateSpace* space) {
  space->pruned.push_back(
      {Candidate{std::string(survivor.family->name), survivor.config, 1}, std::move(rejection)});
}

// Moves the config that the register rule hurts least from the dropped ones back.
void apply_register_fallback(int head_dim, std::vector<Survivor>* survivors,
                             CandidateSpace* space) {
  auto best = space->pruned.end();
  const auto ratio_is_less = [](const KernelConfig& a, const KernelConfig& b) {
    return a.block_m * b.num_warps < b.block_m * a.num_warps;
  };
  for (auto it = space->pruned.begin(); it != space->pruned.end(); ++it) {
    if (it->rejection.reason != RejectReason::kRegisters ||
        within_register_rule(it->candidate.config, head_dim)) {
      continue;
    }
    if (best == space->pruned.end() ||
        ratio_is_less(it->candidate.config, best->candidate.config)) {
      best = it;
    }
  }
  if (best == space->pruned.end()) return;
  survivors->push_back({find_family(best->candidate.family), best->candidate.config});
  space->pruned.erase(best);
}

// Drops BLOCK_Ms that compute mostly padding and those that cut the rows into too many blocks.
void drop_useless_block_m(const Problem& problem, std::vector<Survivor>* survivors,
                          CandidateSpace* space) {
  const int rows = problem.num_rows();
  const int padded_rows = ceil_div(rows, kMmaRows) * kMmaRows;
  int enough = 0;                 // smallest BLOCK_M that holds all rows
  int row_block_limit = 1 << 20;  // of the largest BLOCK_M
  for (const Survivor& survivor : *survivors) {
    const int block_m = survivor.config.block_m;
    if (block_m >= rows && (enough == 0 || block_m < enough)) enough = block_m;
    row_block_limit = std::min(row_block_limit, ceil_div(rows, block_m));
  }
  // A prefill has row blocks enough for every CTA, and half of BLOCK_M may let two of them share an
  // SM.
  if (problem.op == Op::kPrefill) row_block_limit *= 2;
  row_block_limit = std::max(row_block_limit, kMaxRowBlocks);
  std::vector<Survivor> useful;
  for (const Survivor& survivor : *survivors) {
    const int block_m = survivor.config.block_m;
    const int row_blocks = ceil_div(rows, block_m);
    // A family that has one BLOCK_M alone says itself from how many rows on it is worth a try. Those
    // with streams come in rows of eight.
    const bool is_padding = survivor.family->least_rows == 1;
    const bool has_streams = survivor.family->num_streams != nullptr;
    const int most = 2 * (has_streams ? ceil_div(rows, kMmaTokens) * kMmaTokens : padded_rows);
    if (is_padding && enough != 0 && block_m > enough && block_m >= most) {
      drop(survivor,
           {RejectReason::kUnsupported,
            fmt::format("block_m={} rows={}: block_m={} holds them all", block_m, rows, enough)},
           space);
    } else if (row_blocks > row_block_limit) {
      drop(survivor,
           {RejectReason::kUnsupported, fmt::format("block_m={} rows={}: row_blocks={} limit={}",
                                                    block_m, rows, row_blocks, row_block_limit)},
           space);
    } else {
      useful.push_back(survivor);
    }
  }
  *survivors = std::move(useful);
}

// Drops the families that have been slower on every shape with so many rows than one that can run.
void drop_outclassed(const Problem& problem, std::vector<Survivor>* survivors,
                     CandidateSpace* space) {
  if (problem.op == Op::kPrefill) return;
  const auto best = std::find_if(survivors->begin(), survivors->end(), [&](const Survivor& one) {
    return problem.num_rows() >= one.family->alone_from;
  });
  if (best == survivors->end()) return;
  const Family* const alone = best->family;
  std::vector<Survivor> kept;
  for (const Survivor& one : *survivors) {
    if (one.family == alone) {
      kept.push_back(one);
    } else {
      drop(one,
           {RejectReason::kUnsupported,
            fmt::format("rows={}: {} is faster from {} rows on", problem.num_rows(), alone->name,
                        alone->alone_from)},
           space);
    }
  }
  *survivors = std::move(kept);
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

// CTAs of a launch of a persistent family: what fills the device, and one for each row block, which the
// device hands out as others end.
std::vector<int> persistent_ctas(const Problem& problem, const KernelConfig& config,
                                 const DeviceInfo& device) {
  const std::int64_t row_blocks = ceil_div(problem.num_rows(), config.block_m);
  // CTAs go on to the blocks that are left, so fewer of them do as well.
  const auto blocks = static_cast<int>(
      std::min<std::int64_t>(row_blocks * problem.num_kv_heads * problem.batch, kMaxTextNumber));
  if (blocks <= device.num_sms) return {blocks};
  return {device.num_sms, blocks};
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

std::vector<int> split_caps(const Problem& problem, const Family& family,
                            const KernelConfig& config, const DeviceInfo& device) {
  if (family.is_persistent) return persistent_ctas(problem, config, device);
  if (!family.splits_keys) return {1};
  if (problem.invariant) return {invariant_split_cap(problem)};
  const int row_blocks = ceil_div(problem.num_rows(), config.block_m);
  const std::int64_t ctas_per_split = std::int64_t{1} * problem.num_kv_heads * row_blocks;
  const int of_sequence = std::max(1, ceil_div(max_visible_keys(problem), config.block_n));
  const std::int64_t limit = std::int64_t{1} * of_sequence * problem.batch;
  const auto fill = [&](int ctas) {
    const auto splits = static_cast<int>(std::min(ctas / ctas_per_split, limit));
    return splits > problem.batch ? splits : 1;
  };
  const auto clusters = [&](int cap) { return merges_in_cluster(family, row_blocks, cap); };
  const auto has_room = [&](int cap) {
    return cap * ctas_per_split * problem.batch <= kMaxClusterCtas;
  };
  // The first one fills the device once and is the default's. Fewer splits are longer ones with
  // less to combine; where the keys are few, much fewer may do.
  const int full = fill(device.num_sms);
  std::vector<int> wanted = {full, std::max(1, full / 2)};
  // Sequences of different lengths: a long one must not be left to one CTA.
  // Not so in a prefill, which has row blocks for all CTAs.
  const int shared = 2 * problem.batch;
  const bool differ = problem.batch > 1 && problem.window == 0 && problem.op != Op::kPrefill;
  if (differ && full < shared && shared <= limit) wanted.insert(wanted.begin(), shared);
  // Twice as many splits differ half as much from an even share.
  if (differ) wanted.push_back(fill(2 * device.num_sms));
  if (full == limit) wanted.push_back(std::max(1, full / 4));
  for (const int per_sm : {2, 3, 4}) {
    if (fits_per_sm(per_sm, problem, family, config, device)) {
      wanted.push_back(fill(per_sm * device.num_sms));
    }
  }
  // Clusters leave SMs to the next launch, whose first tiles come in meanwhile.
  for (const int cap : {16, 8, 4}) {
    if (cap > of_sequence || !clusters(cap)) continue;
    if (problem.batch == 1 || has_room(cap)) wanted.push_back(cap);
  }
  // One split less is no cluster, where these would not all find room.
  for (int& cap : wanted) {
    if (cap > 2 && clusters(cap) && !has_room(cap)) --cap;
    if (cap <= problem.batch && !clusters(cap)) cap = 1;
  }
  std::vector<int> caps;
  for (const int cap : wanted) {
    if (std::find(caps.begin(), caps.end(), cap) == caps.end()) caps.push_back(cap);
  }
  return caps;
}

std::optional<Rejection> prune(const Problem& problem, const Family& family,
                               const KernelConfig& config, const DeviceInfo& device) {
  if (const auto unsupported = family.supports(problem, config)) {
    return Rejection{RejectReason::kUnsupported, unsupported->detail};
  }
  if (device.compute_capability() < family.min_compute_capability) {
    return Rejection{RejectReason::kUnsupported,
                     fmt::format("compute_capability={} needed={}", device.compute_capability(),
                                 family.min_compute_capability)};
  }
  if (!family.only_arch.empty() && device.arch != family.only_arch && !is_host_arch(device.arch)) {
    return Rejection{RejectReason::kUnsupported,
                     fmt::format("arch={} needed={}", device.arch, family.only_arch)};
  }
  const int num_threads = config.num_warps * kWarpSize;
  if (num_threads > device.max_threads_per_block) {
    return Rejection{RejectReason::kThreads,
                     fmt::format("threads={} limit={}", num_threads, device.max_threads_per_block)};
  }
  const int smem_bytes = family.smem_bytes_of(problem, config);
  if (smem_bytes > device.max_smem_per_block_bytes) {
    return Rejection{RejectReason::kSmem, fmt::format("smem_bytes={} limit={}", smem_bytes,
                                                      device.max_smem_per_block_bytes)};
  }
  if (family.is_linear()) return std::nullopt;
  if (!within_register_rule(config, problem.head_dim)) {
    return Rejection{
        RejectReason::kRegisters,
        fmt::format("block_m={} head_dim={} num_warps={}: {} > {}", config.block_m,
                    problem.head_dim, config.num_warps, config.block_m * problem.head_dim,
                    kAccumulatorsPerWarp * config.num_warps)};
  }
  if (!fits_register_file(config, problem.head_dim, device.registers_per_sm)) {
    return Rejection{
        RejectReason::kRegisters,
        fmt::format("block_m={} block_n={} head_dim={} num_warps={}: {} accumulators and scores a "
                    "thread and {} more do not fit",
                    config.block_m, config.block_n, problem.head_dim, config.num_warps,
                    config.block_m * (problem.head_dim + config.block_n) / num_threads,
                    kWorkingRegisters)};
  }
  return std::nullopt;
}

bool is_disabled(const Family& family, std::span<const std::string> disabled) {
  return std::find(disabled.begin(), disabled.end(), family.name) != disabled.end();
}

CandidateSpace candidate_space(const Problem& problem, const DeviceInfo& device,
                               std::span<const std::string> disabled) {
  CandidateSpace space;
  std::vector<Survivor> survivors;
  for (const Family& family : families_of(problem.op)) {
    if (is_disabled(family, disabled)) continue;
    for (const KernelConfig& config : family.configs(problem)) {
      const Survivor one{&family, config};
      if (auto rejection = prune(problem, family, config, device)) {
        drop(one, std::move(*rejection), &space);
      } else {
        survivors.push_back(one);
      }
    }
  }
  if (problem.is_linear()) {
    for (const Survivor& one : survivors)
      space.kept.push_back({std::string(one.family->name), one.config, 1});
    drop_poor_linear(problem, device, &space);
    return space;
  }
  if (survivors.empty()) apply_register_fallback(problem.head_dim, &survivors, &space);
  drop_outclassed(problem, &survivors, &space);
  drop_useless_block_m(problem, &survivors, &space);
  for (const Survivor& survivor : survivors) {
    for (const int cap : split_caps(problem, *survivor.family, survivor.config, device)) {
      space.kept.push_back({std::string(survivor.family->name), survivor.config, cap});
    }
  }
  return space;
}

std::optional<Rejection> prune_compiled(const Binary& binary, const LaunchPlan& plan,
                                        const DeviceInfo& device) {
  for (const std::string& note : binary.notes) {
    if (is_fatal_note(note)) return Rejection{RejectReason::kPtxasNote, note};
  }
  for (const KernelResources& kernel : binary.kernels) {
    if (kernel.spill_store_bytes > 0 || kernel.spill_load_bytes > 0) {
      return Rejection{RejectReason::kSpill,
                       fmt::format("spill_store_bytes={} spill_load_bytes={} registers={} in {}",
                                   kernel.spill_store_bytes, kernel.spill_load_bytes,
                                   kernel.registers, kernel.symbol)};
    }
    if (kernel.stack_bytes > 0) {
      return Rejection{RejectReason::kStack,
                       fmt::format("stack_bytes={} in {}", kernel.stack_bytes, kernel.symbol)};
    }
    const bool is_combine = kernel.symbol.starts_with("combine");
    const Dim3& block = is_combine ? plan.combine.block : plan.split.block;
    const int num_warps = ceil_div(static_cast<int>(block.x * block.y * block.z), kWarpSize);
    const int per_warp = ceil_div(kernel.registers * kWarpSize, kRegisterUnit) * kRegisterUnit;
    if (per_warp * num_warps > device.registers_per_sm) {
      return Rejection{
          RejectReason::kRegisters,
          fmt::format("registers={} num_warps={}: {} > {} in {}", kernel.registers, num_warps,
                      per_warp * num_warps, device.registers_per_sm, kernel.symbol)};
    }
  }
  return std::nullopt;
}

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
    return std::make_tuple(0, sides, is_paired ? 0 : 1, row_blocks, block_n, kv_bytes, warps,
                           config.block_n, -config.num_stages, config.num_warps);
  };
  return *std::min_element(
      space.kept.begin(), space.kept.end(),
      [&](const Candidate& a, const Candidate& b) { return rank(a) < rank(b); });
}

}  // namespace attune
