#include "tuner/space.h"

#include <algorithm>

#include <fmt/format.h>

#include "jit/compiler.h"
#include "jit/host/host_target.h"
#include "tuner/linear_space.h"
#include "tuner/space_parts.h"

namespace attune {
namespace {

// More row blocks read K/V that many times through L2; dropped where a larger BLOCK_M runs.
constexpr int kMaxRowBlocks = 4;
// Registers are handed to a warp in units of this many.
constexpr int kRegisterUnit = 256;

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

}  // namespace

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

}  // namespace attune
