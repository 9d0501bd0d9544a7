// Proves a candidate right before it may be timed: edge shapes, poisoned buffers, guard bytes, the
// CPU reference.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "cache/records.h"
#include "jit/device.h"
#include "tuner/reference.h"

namespace attune {

// Largest relative L2 error of an admitted kernel over the accuracy case (design.md 9).
constexpr double kMaxRelativeL2 = 2.5e-3;
// Largest relative L2 error of one sequence among the edge cases, where a few keys make the
// rounding of P visible.
constexpr double kMaxEdgeRelativeL2 = 8e-3;

// A launch with its answer; shared by all candidates of a problem.
struct VerifyCase {
  std::string name;
  AttentionInputs inputs;
  AttentionOutputs expected;
};

// The edge lengths of a problem, for tiles of every BLOCK_N in use: 0, 1, tile-1, tile, tile+1, M >
// kv_len, window edges, ring wrap. K/V rows that no query may see are NaN.
std::vector<int> edge_kv_lens(const Problem& problem);
// Builds the cases (inputs and reference). `seed` fixes the data.
std::vector<VerifyCase> verify_cases(const Problem& problem, std::uint64_t seed);

// Runs every case with output and workspace poisoned and guard bytes around them, twice, and
// compares; the second run must give the same bits.
std::variant<Admission, Rejection> verify(Device& device, const AttentionKernels& kernels,
                                          const Candidate& candidate,
                                          const std::vector<VerifyCase>& cases);

}  // namespace attune
