#include "tuner/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "jit/host/host_target.h"
#include "templates/launch_plan.h"
#include "templates/split_plan.h"
#include "tuner/linear_space.h"
#include "tuner/select.h"
#include "tuner/space_parts.h"

namespace attune {
namespace {

// Fitted to times of 1258 candidates on an H200 (bench/results/h200-2026-11-30-candidates); a fit to
// half of the lengths ranks the other half as well.

// A launch: it begins, reads kv_len, plans its splits, and the next one learns of its end.
constexpr double kLaunchUs = 3.0;
// From a request to the arrival of its bytes.
constexpr double kLoadUs = 0.46;
// A row of 512 numbers: queries on their way in, the output or its partial result on its way out.
constexpr double kRowUs = 0.078;
// Of the time that a tile is worked on its slots are held for this share: K is done with before V.
constexpr double kHeldShare = 0.3;
// A combine's launch behind the split kernel; a cluster's barriers, and what its CTAs read of others.
// The fit has 1.3 for the combine, which has become faster since those times were taken.
constexpr double kCombineUs = 0.9;
constexpr double kClusterUs = 0.54, kClusterCtaUs = 0.073;
// Partial rows go out and come in through L2, at this share of the read rate.
constexpr double kPartialsRate = 0.8;
// Cycles of a tile beside its products: barriers, the softmax.
constexpr double kTileCycles = 220, kStreamTileCycles = 340, kWgmmaTileCycles = 1080;
// Cycles in which a warp alone computes 16 keys x 8 rows of head_dim 512.
constexpr double kWarpStepCycles = 1150;
// Cycles in which a CTA merges the outputs of 4 streams of 8 rows of head_dim 512.
constexpr double kMergeCycles = 590;
// How well the limits of a CTA's work hide behind the strictest: 1 is not at all, infinity is all.
constexpr double kOverlap = 3.6;
// Warps that keep an SM's tensor cores busy.
constexpr double kBusyWarps = 8;

// What an SM takes in, and what its shared memory hands out, as measured on an H200.
constexpr double kPortBytesPerClock = 90;
constexpr double kSmemBytesPerClock = 128;
constexpr int kUnknownRegisters = 128;  // of a thread

// Of times that pass at once; the longest counts most, but the others are not hidden altogether.
double overlapped(std::initializer_list<double> times_us) {
  double sum = 0;
  for (const double us : times_us) sum += std::pow(us, kOverlap);
  return std::pow(sum, 1 / kOverlap);
}

struct ArchitectureRates {
  std::string_view arch;
  double read_gb_per_s;  // of an SM's share
  double clock_ghz, mma_flops, wgmma_flops;
};
constexpr ArchitectureRates kH200 = {"sm_90a", 33.7, 1.98, 2730, 4096};
constexpr std::array kRates = {
    kH200,
    ArchitectureRates{"sm_80", 16.5, 1.41, 2048, 0},
    ArchitectureRates{"sm_86", 8.5, 1.70, 512, 0},
    ArchitectureRates{"sm_89", 7.4, 2.50, 512, 0},
    ArchitectureRates{"sm_100a", 50.0, 1.85, 2730, 0},
    ArchitectureRates{"sm_120", 10.0, 2.40, 512, 0},
};

// What the CTAs of the split kernel do.
struct Work {
  double num_ctas = 1;
  double keys = 0;  // of the busiest
  double row_blocks = 1;
};

Work work_of(const Problem& problem, const Candidate& candidate, const LaunchPlan& plan,
             int kv_len) {
  const KeyRange visible = visible_keys(kv_len, problem.seqlen_q, 0, problem.seqlen_q - 1,
                                        problem.window, problem.causal ? 1 : 0);
  const int num_keys = visible.end - visible.begin;
  const int block_n = candidate.config.block_n;
  int splits = 1, keys = num_keys;
  if (plan.split_cap == 0) {
    keys = shared_split_size(std::int64_t{num_keys} * problem.batch, plan.num_slots, problem.batch,
                             block_n, kSplitSizes / 2);
    splits = shared_splits(num_keys, keys);
  } else if (problem.invariant) {
    const ChunkRule rule = chunk_rule(problem.head_dim, problem.num_kv_heads, problem.window);
    splits = plan_chunks(rule, visible, plan.split_cap).num_chunks;
    keys = splits > 0 ? (num_keys - 1) / splits + 1 : 0;
  } else if (known_family(candidate.family).splits_keys) {
    const SplitPlan split_plan = plan_splits(visible, block_n, plan.split_cap);
    splits = split_plan.num_splits;
    keys = split_plan.keys_per_split;
  }
  Work work;
  work.row_blocks = plan.num_row_blocks;
  work.keys = std::min(keys, num_keys);
  work.num_ctas = work.row_blocks * problem.num_kv_heads * problem.batch * std::max(1, splits);
  return work;
}

int resident_ctas(const Candidate& candidate, const LaunchPlan& plan, const DeviceInfo& device,
                  const KernelResources* split) {
  if (is_host_arch(device.arch)) return 1;
  const int threads = candidate.config.num_warps * kWarpSize;
  const int registers = split != nullptr ? std::max(1, split->registers) : kUnknownRegisters;
  const int resident =
      std::min({device.smem_per_sm_bytes / (plan.split.smem_bytes + kReservedSmemBytes),
                kThreadsPerSm / threads, device.registers_per_sm / (registers * threads)});
  return std::max(1, resident);
}

// A round of a CTA: a tile, or one of each stream. In cycles: how long it takes where nothing else
// runs on the SM, and how long it keeps what the SM's CTAs share, shared memory or tensor cores.
struct Round {
  int keys;
  double alone;
  double shared;
};

double shared_cycles(double fetched_elements, double flops, double mma_flops) {
  return std::max(fetched_elements * kBytesPerElement / kSmemBytesPerClock, flops / mma_flops);
}

// Each warp reads the keys of its tile and its queries, with fragments of eight rows.
Round round_of_streams(const Problem& problem, const KernelConfig& config, int streams,
                       const DeviceRates& rates) {
  const double d = problem.head_dim;
  const int warp_rows = std::min(config.block_m, 4096 / problem.head_dim);
  const int keys = streams * config.block_n;
  const double fetched = config.num_warps * (2.0 * config.block_n + warp_rows) * d;
  const double shared = shared_cycles(fetched, 4.0 * config.block_m * keys * d, rates.mma_flops);
  // Twice the rows need twice the products, but the same loads of keys.
  const double rows = (1 + double(warp_rows) / kMmaTokens) / 2;
  const double step = kWarpStepCycles * d / 512 * config.block_n / 16 * rows;
  return {keys, kStreamTileCycles + std::max(step, shared), shared};
}

// All warps share a tile.
Round round_of_tile(const Problem& problem, const KernelConfig& config, bool splits_keys,
                    const DeviceRates& rates) {
  const double d = problem.head_dim;
  const double rows = config.block_m, keys = config.block_n, warps = config.num_warps;
  const WarpGrid grid = splits_keys ? score_warp_grid(config) : tiled_warp_grid(config);
  const double groups = std::max(1, grid.rows);
  const double scores = (warps * rows / groups + groups * keys) * d;
  const double values = (splits_keys ? 1 : groups) * keys * d + warps * rows * keys;
  const double flops = 4 * std::max<double>(rows, kMmaRows) * keys * d;
  const double shared = shared_cycles(scores + values, flops, rates.mma_flops);
  return {config.block_n, kTileCycles + shared / std::min(1.0, warps / kBusyWarps), shared};
}

Round round_of(const Problem& problem, const Candidate& candidate, const DeviceRates& rates) {
  const Family& family = known_family(candidate.family);
  const KernelConfig& config = candidate.config;
  if (family.num_streams != nullptr) {
    return round_of_streams(problem, config, family.num_streams(config, problem.head_dim), rates);
  }
  if (family.only_arch.empty()) return round_of_tile(problem, config, family.splits_keys, rates);
  const double shared =  // wgmma reads its operands while it computes
      4.0 * config.block_m * config.block_n * problem.head_dim / rates.wgmma_flops;
  return {config.block_n, kWgmmaTileCycles + shared, shared};
}

// At the end streams that share no columns of the output are merged.
double merge_cycles(const Problem& problem, const Candidate& candidate) {
  if (candidate.family != "swapab") return 0;
  const int streams = stream_grid(candidate.config, problem.head_dim).streams;
  return kMergeCycles * streams / 4 * candidate.config.block_m / 8 * problem.head_dim / 512;
}

double partials_us(const Problem& problem, const Candidate& candidate, const LaunchPlan& plan,
                   const Work& work, const DeviceRates& rates) {
  const bool is_cluster = plan.merges_in_cluster;
  if (!plan.needs_combine && !is_cluster) return 0;
  const double bytes = work.num_ctas * candidate.config.block_m * problem.head_dim *
                       partial_element_bytes(known_family(candidate.family).packs_partials);
  const double through_us = 2 * bytes / (kPartialsRate * rates.read_bytes_per_s) * 1e6;
  return through_us + (is_cluster ? kClusterUs + kClusterCtaUs * plan.split.cluster.x : kCombineUs);
}

}  // namespace

DeviceRates device_rates(const DeviceInfo& device) {
  const auto known = std::find_if(kRates.begin(), kRates.end(),
                                  [&](const auto& one) { return one.arch == device.arch; });
  const ArchitectureRates& rates = known == kRates.end() ? kH200 : *known;
  return {rates.read_gb_per_s * 1e9 * device.num_sms, rates.clock_ghz * 1e9, rates.mma_flops,
          std::max(rates.wgmma_flops, rates.mma_flops)};
}

std::optional<Ceilings> known_ceilings(const DeviceInfo& device) {
  const bool is_known = std::any_of(kRates.begin(), kRates.end(),
                                    [&](const auto& one) { return one.arch == device.arch; });
  if (!is_known || device.num_sms < 1) return std::nullopt;
  const DeviceRates rates = device_rates(device);
  return Ceilings{rates.read_bytes_per_s, rates.wgmma_flops * rates.clock_hz * device.num_sms};
}

double predicted_us(const Problem& problem, const Candidate& candidate, const DeviceInfo& device,
                    int kv_len, const KernelResources* split) {
  const DeviceRates rates = device_rates(device);
  const double cycle_us = 1e6 / rates.clock_hz;
  const Family& family = known_family(candidate.family);
  const KernelConfig& config = candidate.config;
  const LaunchPlan plan = plan_launch(problem, candidate);
  const Work work = work_of(problem, candidate, plan, kv_len);
  const Round round = round_of(problem, candidate, rates);
  const double busy_sms = std::min<double>(device.num_sms, work.num_ctas);
  const double per_sm = std::ceil(work.num_ctas / device.num_sms);  // CTAs of the busiest
  const double together = std::min<double>(resident_ctas(candidate, plan, device, split), per_sm);

  // Bytes come in by the SM's share of the device (row blocks share what they read), by its port, or
  // by its slots, each of which is under way and then worked on.
  const int key_elements =
      kv_stage_elements({1, 1, 1, 1}, problem.head_dim,
                        family.has_slices ? KvLayout::kContiguous : problem.kv_layout);
  const double key_bytes = key_elements * double{kBytesPerElement};
  const int streams = family.num_streams ? family.num_streams(config, problem.head_dim) : 1;
  const double slot_share = family.has_slices ? double{kSliceColumns} / key_elements : 1;
  const double slot_keys =
      std::min<double>(streams * config.num_stages * config.block_n * slot_share, work.keys);
  const double slot_us = kLoadUs + kHeldShare * round.alone * cycle_us;
  const double bytes = per_sm * work.keys * key_bytes;
  const double shared_us = bytes * busy_sms / (rates.read_bytes_per_s * work.row_blocks) * 1e6;
  const double port_us = bytes / (kPortBytesPerClock * rates.clock_hz) * 1e6;
  const double slots_us = slot_keys > 0 ? per_sm / together * work.keys / slot_keys * slot_us : 0;

  // A ring begins again inside of a tile, at most lengths, and makes two of it.
  const bool begins_again = problem.kv_layout == KvLayout::kRing && kv_len > problem.window;
  const double tiled_keys = work.keys + (begins_again ? config.block_n : 0);
  const double rounds = std::ceil(tiled_keys / round.keys) * std::ceil(per_sm / together);
  const double compute_us = rounds * std::max(round.alone, together * round.shared) * cycle_us;
  return kLaunchUs + kLoadUs + kRowUs * config.block_m * problem.head_dim / 512 +
         overlapped({shared_us, port_us, slots_us, compute_us}) +
         merge_cycles(problem, candidate) * cycle_us +
         partials_us(problem, candidate, plan, work, rates);
}

std::vector<Candidate> ranked(const Problem& problem, const std::vector<Candidate>& candidates,
                              const DeviceInfo& device) {
  if (problem.is_linear()) return ranked_linear(problem, candidates, device);
  const std::vector<int> points = kv_points(problem.kv);
  std::vector<CandidateMeasurements> predicted;
  for (const Candidate& candidate : candidates) {
    CandidateMeasurements one{candidate, {}};
    for (const int kv_len : points) {
      Measurement point;
      point.kv_len = kv_len;
      point.median_us = predicted_us(problem, candidate, device, kv_len);
      one.points.push_back(point);
    }
    predicted.push_back(std::move(one));
  }
  const auto regrets = worst_regrets(predicted, points);
  std::vector<Candidate> order = candidates;
  std::stable_sort(order.begin(), order.end(), [&](const Candidate& a, const Candidate& b) {
    return regrets.at(a) < regrets.at(b);
  });
  return order;
}

}  // namespace attune
