// Tuner::audit_register_rule: what the register rule costs or saves, measured.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "common/error.h"
#include "tuner/space.h"
#include "tuner/unit_run.h"

namespace attune {
namespace {

// The winner that is stored for the problem, else the default.
Candidate candidate_to_beat(const TuneStore& store, const DeviceInfo& gpu, const Problem& problem,
                            const std::string& compiler_version) {
  for (const Family& family : families_of(problem.op)) {
    const Toolchain toolchain = toolchain_of(family, gpu.arch, compiler_version);
    const auto hit = store.find_winner(gpu, problem, toolchain);
    if (hit && hit->match == Match::kExact) return hit->winner.candidate;
  }
  return default_candidate(problem, gpu);
}

std::vector<RuleAudit> audited_candidates(const Problem& problem, const DeviceInfo& gpu,
                                          const Candidate& to_beat) {
  std::vector<RuleAudit> audits(1);
  audits.front().candidate = to_beat;
  audits.front().within_rule = true;
  for (const PrunedCandidate& one : candidate_space(problem, gpu).pruned) {
    if (one.rejection.reason != RejectReason::kRegisters ||
        within_register_rule(one.candidate.config, problem.head_dim)) {
      continue;
    }
    const Family& family = known_family(one.candidate.family);
    for (const int cap : split_caps(problem, family, one.candidate.config, gpu)) {
      audits.emplace_back().candidate = {one.candidate.family, one.candidate.config, cap};
    }
  }
  return audits;
}

bool is_spill(const Rejection& rejection) {
  return rejection.reason == RejectReason::kSpill || rejection.reason == RejectReason::kStack;
}

class Audit {
 public:
  Audit(MeasureService& measure, const CompileStage& compiles, const Problem& problem, int kv_len,
        const Stop& stop)
      : measure_(measure), compiles_(compiles), problem_(problem), kv_len_(kv_len), stop_(stop) {
    measure_.open({problem, 1, compiles.probes()});
  }
  ~Audit() { measure_.close(); }
  Audit(const Audit&) = delete;
  Audit& operator=(const Audit&) = delete;

  void verify(RuleAudit* audit) {
    const Binary* binary = usable_binary(audit);
    if (binary == nullptr) return;
    const auto outcome = measure_.verify(audit->candidate, *binary, stop_);
    if (!std::holds_alternative<Admission>(outcome)) audit->failure = reason_of(outcome);
  }

  // Of an admitted one.
  void time(RuleAudit* audit) {
    const Binary& binary = *compiles_.find(audit->candidate.variant(problem_));
    const auto outcome = measure_.time(audit->candidate, binary, kv_len_, {}, stop_);
    const auto* timing = std::get_if<Timing>(&outcome);
    if (timing == nullptr) {
      audit->failure = reason_of(outcome);
      return;
    }
    audit->measurement = measurement_of(kv_len_, *timing, measure_.device().driver_version);
  }

 private:
  template <typename Outcome>
  static std::string reason_of(const Outcome& outcome) {
    const auto* rejection = std::get_if<Rejection>(&outcome);
    return rejection == nullptr ? "stopped" : rejection->detail;
  }

  // nullptr, with the failure noted, for what need not run.
  const Binary* usable_binary(RuleAudit* audit) const {
    const Variant variant = audit->candidate.variant(problem_);
    const Binary* binary = compiles_.find(variant);
    if (binary == nullptr) {
      const std::string* log = compiles_.failure(variant);
      audit->failure = "compile: " + (log == nullptr ? std::string("not reached") : *log);
      return nullptr;
    }
    for (const KernelResources& kernel : binary->kernels) {
      if (!kernel.symbol.starts_with("combine")) audit->resources = kernel;
    }
    const LaunchPlan plan = plan_launch(problem_, audit->candidate);
    const auto rejection = prune_compiled(*binary, plan, measure_.device());
    if (rejection && !is_spill(*rejection)) {
      audit->failure = rejection->detail;
      return nullptr;
    }
    return binary;
  }

  MeasureService& measure_;
  const CompileStage& compiles_;
  const Problem& problem_;
  int kv_len_;
  const Stop& stop_;
};

}  // namespace

std::vector<RuleAudit> Tuner::audit_register_rule(const Problem& problem, int kv_len,
                                                  const Stop& stop) {
  if (measure_ == nullptr) throw DeviceUnavailable("cannot audit the register rule without a GPU");
  problem.validate();
  if (!problem.kv.contains({kv_len, kv_len})) {
    throw InvalidArgument("the audit's kv_len is outside the problem's range",
                          fmt::format("kv_len={} problem={}", kv_len, problem.text()));
  }
  const DeviceInfo& gpu = measure_->device();
  const Candidate to_beat = candidate_to_beat(store_, gpu, problem, compiles_.compiler_version());
  std::vector<RuleAudit> audits = audited_candidates(problem, gpu, to_beat);
  std::set<Variant> variants;
  for (const RuleAudit& audit : audits) variants.insert(audit.candidate.variant(problem));
  CompileStage stage(store_, compiles_, gpu.arch);
  stage.run(variants, true, false, {}, stop);
  if (stage.probes() == nullptr) {
    if (stop && stop()) return {};
    throw Error("the measuring kernels do not compile", fmt::format("arch={}", gpu.arch),
                stage.probes_failure());
  }
  Audit audit(*measure_, stage, problem, kv_len, stop);
  for (RuleAudit& one : audits) audit.verify(&one);
  for (RuleAudit& one : audits) {
    if (one.failure.empty()) audit.time(&one);
  }
  std::stable_sort(audits.begin(), audits.end(), [](const RuleAudit& a, const RuleAudit& b) {
    const bool a_failed = !a.failure.empty();
    const bool b_failed = !b.failure.empty();
    if (a_failed != b_failed) return b_failed;
    return a.measurement.median_us < b.measurement.median_us;
  });
  return audits;
}

}  // namespace attune
