// The candidates of a problem and the rules that drop them before anything is compiled or run: pure
// functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/records.h"
#include "jit/device_info.h"
#include "templates/family.h"
#include "templates/launch_plan.h"

namespace attune {

// The register rule: the fp32 accumulator of a tile needs BLOCK_M x head_dim registers over the
// CTA; at most 128 a thread may hold it, i.e. BLOCK_M * head_dim <= 4096 * num_warps.
constexpr int kAccumulatorsPerWarp = 128 * kWarpSize;
constexpr bool within_register_rule(const KernelConfig& config, int head_dim) {
  return config.block_m * head_dim <= kAccumulatorsPerWarp * config.num_warps;
}

// Registers of a thread for fragments, addresses and the softmax, beside its accumulators and
// scores.
constexpr int kWorkingRegisters = 56;

// Whether a thread's share of the register file holds its accumulators, scores and working
// registers. The register rule counts warps as if each had 255 registers a thread; 16 warps have
// 128.
constexpr bool fits_register_file(const KernelConfig& config, int head_dim, int registers_per_sm) {
  constexpr int kMostPerThread = 255;
  const int threads = config.num_warps * kWarpSize;
  const int share = registers_per_sm / threads;
  const int available = share < kMostPerThread ? share : kMostPerThread;
  const int held = config.block_m * (head_dim + config.block_n) / threads;
  return held + kWorkingRegisters <= available;
}

struct PrunedCandidate {
  Candidate candidate;
  Rejection rejection;
};

struct CandidateSpace {
  std::vector<Candidate> kept;
  std::vector<PrunedCandidate> pruned;
};

// The split caps worth trying: fractions and multiples of what fills the device once. An invariant
// problem has one, its number of chunks, and so has a family that does not split: 1.
std::vector<int> split_caps(const Problem& problem, const Family& family,
                            const KernelConfig& config, const DeviceInfo& device);

// Why a config cannot run this problem on this device: family limits, shared memory, threads,
// register rule.
std::optional<Rejection> prune(const Problem& problem, const Family& family,
                               const KernelConfig& config, const DeviceInfo& device);

// All candidates of all families but those that `disabled` names. When the register rule alone
// leaves nothing, the config with the smallest BLOCK_M / num_warps among those it dropped stays
// (the fallback of the rule).
CandidateSpace candidate_space(const Problem& problem, const DeviceInfo& device,
                               std::span<const std::string> disabled = {});

// Why a compiled binary must not be used: spills, stack frames, fatal ptxas notes, registers x
// threads over the SM's file.
std::optional<Rejection> prune_compiled(const Binary& binary, const LaunchPlan& plan,
                                        const DeviceInfo& device);

// The candidate that a pure rule picks without measuring; always one of candidate_space(...).kept.
// Throws InvalidArgument when the space is empty, with the count and first example of every reason,
// and with the families that are off where one of them could have computed it.
Candidate default_candidate(const Problem& problem, const DeviceInfo& device,
                            std::span<const std::string> disabled = {});

// Whether `disabled` names the family.
bool is_disabled(const Family& family, std::span<const std::string> disabled);

}  // namespace attune
