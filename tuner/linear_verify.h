// Proves a linear layer's candidate right: every output of the whole layer, in guarded memory.
#pragma once

#include <variant>
#include <vector>

#include "jit/linear.h"
#include "tuner/device_case.h"
#include "tuner/linear_reference.h"
#include "tuner/verify.h"

namespace attune {

class LinearVerifier : public CandidateVerifier {
 public:
  // `probes` may be null: it has the kernel that writes x late.
  LinearVerifier(Device& device, const Problem& problem, std::uint64_t seed,
                 const Binary* probes = nullptr);

  // Launches with all tokens, with one more than half and with one, each twice, of experts with the
  // typical_entries of so many. Every output is
  // compared with the reference; the second launch must give the same bits, and so must the first
  // token with fewer beside it, and a third launch that may begin long before the kernel in front of it
  // writes x, which is NaN until then: x may be read behind griddepcontrol.wait only (on the host device
  // kernels do not overlap, and any kernel passes). Behind W and behind the tokens lie NaNs, around the output and in its
  // other rows nothing may be written.
  std::variant<Admission, Rejection> verify(const AttentionKernels& kernels,
                                            const Candidate& candidate) override;
  double flops() const override;

 private:
  struct Case {
    int num_tokens;
    float softcap;
    std::vector<int> entries;  // experts in their order; {0}: the layer is not one of them
    DeviceMem list;            // RouteParams::chosen
    DeviceMem input;  // rows of all tokens, of all entries where each has its own; NaN behind them
    DeviceMem rows;   // those rows again, where x is written late

    int num_rows() const { return num_tokens * static_cast<int>(entries.size()); }  // of the output
  };
  struct Errors {
    double difference = 0, norm = 0, max_abs = 0;
    double relative_l2() const;
  };
  using Bytes = std::vector<std::byte>;
  struct Result {
    Errors errors;
    Bytes first_token;  // what it wrote for it
  };

  Case make_case(int num_tokens, float softcap);
  std::size_t row_bytes(const Case& one) const;  // of its x
  void upload_weights(const LinearInputs& inputs);
  void write_input_late(const Case& one);
  std::variant<Bytes, Rejection> launch(const LinearKernel& linear, const Case& one,
                                        bool late_input = false);
  std::variant<Errors, Rejection> compare(const Case& one, const Bytes& out) const;
  std::variant<Result, Rejection> run(const LinearKernel& linear, const Case& one);
  double value_at(const Bytes& out, std::size_t idx) const;

  Device& device_;
  const Problem problem_;
  const LinearInputs inputs_;
  const LinearReference reference_;
  const std::size_t element_bytes_;  // of the output
  Module probes_;
  Kernel copy_late_;  // none without probes
  Stream stream_;
  DeviceMem weights_;
  std::vector<Case> cases_;
  GuardedMem out_;  // for all tokens, and all entries that they have
};

}  // namespace attune
