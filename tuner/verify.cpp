#include "tuner/verify.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "tuner/compare.h"
#include "tuner/device_case.h"
#include "tuner/linear_verify.h"
#include "tuner/timer.h"
#include "tuner/timestamp.h"

namespace attune {
namespace {

// In so few splits the accuracy case fills every pipeline stage many times.
constexpr int kFewSplits = 2;
constexpr int kFewCtas = 3;

// The plan of a case, whose batch is not the problem's: shared slots are enough for as many splits of
// every sequence as the only one would have.
LaunchPlan plan_case(const Problem& of_case, Candidate candidate, bool shares) {
  if (shares) candidate.split_cap *= of_case.batch;
  return plan_launch(of_case, candidate, shares);
}

// What a launch wrote.
struct RunResult {
  std::vector<std::byte> out, lse;
  std::optional<Rejection> rejection;  // a broken guard
};

}  // namespace

struct Verifier::State {
  State(Device& on, const std::vector<VerifyCase>& cases) : device(on), stream(on.create_stream()) {
    for (const VerifyCase& one : cases) device_cases.emplace_back(on, one, stream.get());
  }

  // One launch into poisoned memory.
  RunResult launch(const DeviceCase& one, const AttentionKernels& kernels, const LaunchPlan& plan,
                   bool with_lse) {
    if (workspace_bytes != plan.workspace_bytes()) {
      workspace = GuardedMem(device, plan.workspace_bytes());
      workspace_bytes = plan.workspace_bytes();
    }
    AttentionParams params = one.params;
    set_plan_params(one.host->inputs.problem, plan, workspace.ptr(), &params);
    params.lse = with_lse ? reinterpret_cast<float*>(one.lse.ptr()) : nullptr;
    one.out.poison(device, stream.get());
    one.lse.poison(device, stream.get());
    workspace.poison(device, stream.get());
    launch_attention(device, kernels, plan, params, stream.get());
    RunResult result{one.out.read(device, stream.get()), one.lse.read(device, stream.get()), {}};
    const std::pair<const char*, const GuardedMem*> guarded[] = {
        {"out", &one.out}, {"lse", &one.lse}, {"workspace", &workspace}};
    for (const auto& [name, mem] : guarded) {
      if (const auto at = mem->broken_guard(device, stream.get())) {
        result.rejection =
            Rejection{RejectReason::kOutOfBounds,
                      fmt::format("case='{}' wrote byte {} of {}", one.host->name, *at, name)};
        break;
      }
    }
    return result;
  }

  std::variant<CaseErrors, Rejection> run(const DeviceCase& one, const AttentionKernels& kernels,
                                          const Candidate& candidate) {
    const Problem& problem = one.host->inputs.problem;
    const LaunchPlan plan = plan_case(problem, candidate, kernels.share_slots);
    const RunResult first = launch(one, kernels, plan, true);
    if (first.rejection) return *first.rejection;
    auto errors = compare(*one.host, one.params, first.out, first.lse);
    if (std::holds_alternative<Rejection>(errors)) return errors;

    const RunResult second = launch(one, kernels, plan, true);
    const RunResult without_lse = launch(one, kernels, plan, false);
    for (const RunResult* again : {&second, &without_lse}) {
      if (again->rejection) return *again->rejection;
      if (again->out != first.out) {
        return Rejection{RejectReason::kWrongResult,
                         fmt::format("case='{}' {} gave other bits", one.host->name,
                                     again == &second ? "a second run" : "a run without lse")};
      }
    }
    if (second.lse != first.lse) {
      return Rejection{RejectReason::kWrongResult,
                       fmt::format("case='{}' a second run gave other lse bits", one.host->name)};
    }
    const auto is_poison = [](std::byte byte) { return byte == std::byte{kPoison}; };
    if (!std::all_of(without_lse.lse.begin(), without_lse.lse.end(), is_poison)) {
      return Rejection{RejectReason::kOutOfBounds,
                       fmt::format("case='{}' wrote lse when none was asked", one.host->name)};
    }
    return errors;
  }

  // As run. With many splits each has a tile or two here, while those of a long sequence have
  // hundreds: the accuracy case runs in few splits too. Persistent CTAs have a block or none each here:
  // every case runs in few CTAs too, which take many in turn. The cap is no part of the binary.
  std::variant<CaseErrors, Rejection> run_short_and_long(const DeviceCase& one,
                                                         const AttentionKernels& kernels,
                                                         const Candidate& candidate) {
    const auto errors = run(one, kernels, candidate);
    const bool fixed_splits = one.host->inputs.problem.invariant;
    const bool is_persistent = known_family(candidate.family).is_persistent;
    const int few_cap = is_persistent ? kFewCtas : kFewSplits;
    const bool is_for_few = is_persistent || one.host->name == kAccuracyCase;
    if (candidate.split_cap <= few_cap || fixed_splits || !is_for_few) return errors;
    if (std::holds_alternative<Rejection>(errors)) return errors;
    Candidate few = candidate;
    few.split_cap = few_cap;
    const auto of_few = run(one, kernels, few);
    if (std::holds_alternative<Rejection>(of_few)) return of_few;
    const CaseErrors& a = std::get<CaseErrors>(errors);
    const CaseErrors& b = std::get<CaseErrors>(of_few);
    return CaseErrors{std::max(a.relative_l2, b.relative_l2),
                      std::max(a.worst_sequence, b.worst_sequence), std::max(a.max_abs, b.max_abs)};
  }

  Device& device;
  Stream stream;
  std::vector<DeviceCase> device_cases;
  GuardedMem workspace;
  std::size_t workspace_bytes = std::numeric_limits<std::size_t>::max();
};

Verifier::Verifier(Device& device, const std::vector<VerifyCase>& cases)
    : state_(std::make_unique<State>(device, cases)) {}

Verifier::~Verifier() = default;

std::variant<Admission, Rejection> Verifier::verify(const AttentionKernels& kernels,
                                                    const Candidate& candidate) {
  Admission admission;
  admission.reference = kReferenceName;
  try {
    for (const DeviceCase& one : state_->device_cases) {
      const auto outcome = state_->run_short_and_long(one, kernels, candidate);
      if (const auto* rejection = std::get_if<Rejection>(&outcome)) return *rejection;
      const CaseErrors& errors = std::get<CaseErrors>(outcome);
      admission.num_cases += static_cast<int>(one.host->inputs.kv_len.size());
      admission.max_abs_error = std::max(admission.max_abs_error, errors.max_abs);
      if (one.host->name == kAccuracyCase) {
        admission.relative_l2 = errors.relative_l2;
      } else {
        admission.worst_case_relative_l2 =
            std::max(admission.worst_case_relative_l2, errors.worst_sequence);
      }
    }
  } catch (const CudaError& error) {
    return Rejection{RejectReason::kLaunch, error.what()};
  }
  admission.created_at = utc_timestamp();
  return admission;
}

double Verifier::flops() const {
  double flops = 0;
  for (const DeviceCase& one : state_->device_cases) {
    flops += problem_flops(one.host->inputs.problem, one.host->inputs.kv_len);
  }
  return flops;
}

namespace {

class OwningVerifier : public CandidateVerifier {
 public:
  OwningVerifier(Device& device, std::vector<VerifyCase> cases)
      : cases_(std::move(cases)), verifier_(device, cases_) {}
  std::variant<Admission, Rejection> verify(const AttentionKernels& kernels,
                                            const Candidate& candidate) override {
    return verifier_.verify(kernels, candidate);
  }
  double flops() const override { return verifier_.flops(); }

 private:
  const std::vector<VerifyCase> cases_;
  Verifier verifier_;
};

}  // namespace

std::unique_ptr<CandidateVerifier> make_verifier(Device& device, const Problem& problem,
                                                 std::uint64_t seed, const Binary* probes) {
  if (problem.is_linear()) return std::make_unique<LinearVerifier>(device, problem, seed, probes);
  return std::make_unique<OwningVerifier>(device, verify_cases(problem, seed));
}

std::variant<Admission, Rejection> verify(Device& device, const AttentionKernels& kernels,
                                          const Candidate& candidate,
                                          const std::vector<VerifyCase>& cases) {
  return Verifier(device, cases).verify(kernels, candidate);
}

}  // namespace attune
