// Proves a candidate right before it may be timed: edge shapes, poisoned buffers, guard bytes, the
// CPU reference.
#pragma once

#include <memory>
#include <string>
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

// Largest relative L2 error of one row of head_dim numbers: a single wrong number of 512 is above
// it.
constexpr double kMaxRowRelativeL2 = 1.6e-2;
// Largest error of a log-sum-exp, times max(1, |lse|). Kernels sum it in fp32; with a softcap the
// hardware's tanh is part of it.
constexpr double kMaxLseError = 1e-3;
constexpr double kMaxLseErrorSoftcap = 5e-3;

// The case whose relative L2 an admission reports; kMaxRelativeL2 holds for it.
constexpr const char* kAccuracyCase = "accuracy";

// A launch with its answer; shared by all candidates of a problem.
struct VerifyCase {
  std::string name;
  AttentionInputs inputs;
  AttentionOutputs expected;
};

// The edge lengths of a problem, for tiles of every BLOCK_N in use: 0, 1, tile-1, tile, tile+1, M >
// kv_len, window edges, ring wrap. K/V rows that no query may see are NaN.
std::vector<int> edge_kv_lens(const Problem& problem);
// Builds the cases (inputs and reference): they are the same for every batch and kv range. `seed`
// fixes the data.
std::vector<VerifyCase> verify_cases(const Problem& problem, std::uint64_t seed);
// One case of these kv_lens, with everything that is not visible poisoned as in the others.
VerifyCase verify_case(const Problem& problem, std::uint64_t seed, std::string name,
                       const std::vector<int>& kv_lens);

// Verifies the candidates of one problem.
class CandidateVerifier {
 public:
  virtual ~CandidateVerifier() = default;
  virtual std::variant<Admission, Rejection> verify(const AttentionKernels& kernels,
                                                    const Candidate& candidate) = 0;
  // Of one launch of every case.
  virtual double flops() const = 0;
};

// With inputs and reference of its own; `seed` fixes them. `probes` (probe_source) may be null: then a
// linear layer is not seen to read x too early.
std::unique_ptr<CandidateVerifier> make_verifier(Device& device, const Problem& problem,
                                                 std::uint64_t seed,
                                                 const Binary* probes = nullptr);

// Cases on a device, uploaded once for all candidates of a problem. Every stride is
// padded, of each tensor by another amount, so that a kernel which assumes or mixes up strides
// fails.
class Verifier : public CandidateVerifier {
 public:
  // `cases` has to outlive it.
  Verifier(Device& device, const std::vector<VerifyCase>& cases);
  ~Verifier() override;

  // Runs every case with output and workspace poisoned and guard bytes around them, twice, and
  // compares; the second run must give the same bits, and so must a third one without lse. The
  // accuracy case runs in few splits as well, so that the loop over tiles is seen to work.
  std::variant<Admission, Rejection> verify(const AttentionKernels& kernels,
                                            const Candidate& candidate) override;
  double flops() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The same for one candidate.
std::variant<Admission, Rejection> verify(Device& device, const AttentionKernels& kernels,
                                          const Candidate& candidate,
                                          const std::vector<VerifyCase>& cases);

}  // namespace attune
