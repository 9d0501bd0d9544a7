#include "tuner/unit_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "tuner/select.h"
#include "tuner/timestamp.h"

namespace attune {
namespace {

// Adds the seconds of its life to a total.
class PhaseClock {
 public:
  explicit PhaseClock(double* total_s) : total_s_(total_s) {}
  ~PhaseClock() {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    *total_s_ += elapsed.count();
  }
  PhaseClock(const PhaseClock&) = delete;
  PhaseClock& operator=(const PhaseClock&) = delete;

 private:
  double* total_s_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

const CandidateMeasurements* find_measured(const std::vector<CandidateMeasurements>& measured,
                                           const Candidate& candidate) {
  for (const CandidateMeasurements& one : measured) {
    if (one.candidate == candidate) return &one;
  }
  return nullptr;
}

// Somebody else's memory, perhaps, or a process that the system ended: another run may do better.
bool is_of_machine(const Rejection& rejection) {
  return rejection.detail.find("CUDA_ERROR_OUT_OF_MEMORY") != std::string::npos ||
         rejection.detail.find(kEndedFromOutside) != std::string::npos;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

UnitRun::UnitRun(UnitContext& context, const PendingUnit& unit) : context_(context), unit_(unit) {
  context_.measure.open({unit.problem, context.options.seed, context.compiles.probes()});
}

void UnitRun::run() {
  for (const PrunedCandidate& one : unit_.space.pruned) {
    rejections_.push_back({one.candidate, Stage::kPrune, one.rejection});
  }
  recall_rejections();
  try {
    verify_all();
    store_rejections();
    if (context_.stop()) return fail("stopped before it was timed");
    if (admitted_.empty()) return fail("no candidate is right; 'attune explain' lists why");
    const std::vector<TimedRange> timed = time_all();
    store_rejections();
    for (std::size_t i = 0; i < timed.size(); ++i) {
      commit(timed[i], unit_.defaults[i], unit_.candidates[i]);
    }
  } catch (const UnitError& error) {
    fail(error.what());
  }
}

Problem UnitRun::problem_of(const KvRange& range) const {
  Problem problem = unit_.problem;
  problem.kv = range;
  return problem;
}

Toolchain UnitRun::toolchain_of_family(const std::string& family) const {
  return toolchain_of(*find_family(family), context_.measure.device().arch,
                      context_.compiler_version);
}

// A launch that failed or hung once costs a process and its deadline, so it is not tried again.
void UnitRun::recall_rejections() {
  if (context_.options.refresh) return;
  for (const Family& family : families_of(unit_.problem.op)) {
    const Toolchain toolchain = toolchain_of_family(std::string(family.name));
    for (const KvRange& range : unit_.ranges) {
      for (const RejectionRecord& record :
           context_.store.rejections(context_.measure.device(), problem_of(range), toolchain)) {
        const RejectReason reason = record.rejection.reason;
        if (is_of_machine(record.rejection)) continue;
        const bool ran = record.stage == Stage::kVerify || record.stage == Stage::kTime;
        if (ran && (reason == RejectReason::kLaunch || reason == RejectReason::kTimeout)) {
          remembered_.emplace(record.candidate, record);
        }
      }
    }
  }
}

void UnitRun::verify_all() {
  const PhaseClock clock(&context_.report.verify_s);
  // Defaults first: they are what everything else is compared with.
  std::vector<Candidate> order = unit_.space.kept;
  std::stable_partition(order.begin(), order.end(), [&](const Candidate& candidate) {
    return std::find(unit_.defaults.begin(), unit_.defaults.end(), candidate) !=
           unit_.defaults.end();
  });
  std::size_t done = 0;
  for (const Candidate& candidate : order) {
    if (context_.stop()) return;
    verify_one(candidate);
    report_progress("verify", candidate.text(), ++done, order.size());
  }
}

// nullptr, with the rejection noted, for what need not run.
const Binary* UnitRun::usable_binary(const Candidate& candidate) {
  if (const auto known = remembered_.find(candidate); known != remembered_.end()) {
    reject(candidate, known->second.stage, known->second.rejection);
    return nullptr;
  }
  const Variant variant = candidate.variant(unit_.problem);
  const Binary* binary = context_.compiles.find(variant);
  if (binary == nullptr) {
    const std::string* log = context_.compiles.failure(variant);
    if (log != nullptr) {
      reject(candidate, Stage::kCompile, {RejectReason::kCompile, first_line(*log)});
    }
    return nullptr;
  }
  const LaunchPlan plan = plan_launch(unit_.problem, candidate);
  if (auto rejection = prune_compiled(*binary, plan, context_.measure.device())) {
    reject(candidate, Stage::kCompile, std::move(*rejection));
    return nullptr;
  }
  return binary;
}

void UnitRun::verify_one(const Candidate& candidate) {
  const Binary* binary = usable_binary(candidate);
  if (binary == nullptr) return;
  auto outcome = context_.measure.verify(candidate, *binary, context_.stop);
  if (auto* rejection = std::get_if<Rejection>(&outcome)) {
    reject(candidate, Stage::kVerify, std::move(*rejection));
  } else if (auto* admission = std::get_if<Admission>(&outcome)) {
    admissions_[candidate] = std::move(*admission);
    admitted_.push_back(candidate);
  }
}

// What the cache has measured in the same way, by candidate and the length that was timed.
std::function<std::optional<Timing>(const Candidate&, int)> UnitRun::recall_times() const {
  std::map<std::pair<Candidate, int>, Timing> known;
  if (context_.options.refresh) return {};
  const DeviceInfo& gpu = context_.measure.device();
  for (const Family& family : families_of(unit_.problem.op)) {
    const Toolchain toolchain = toolchain_of_family(std::string(family.name));
    for (const auto& measured : context_.store.measurements(gpu, unit_.problem, toolchain)) {
      for (const Measurement& point : measured.points) {
        const auto timing = timing_of(point, gpu.driver_version);
        const int kv_len = equivalent_kv_len(unit_.problem, point.kv_len);
        if (timing) known.insert_or_assign({measured.candidate, kv_len}, *timing);
      }
    }
  }
  return [known = std::move(known)](const Candidate& candidate, int kv_len) {
    const auto found = known.find({candidate, kv_len});
    return found == known.end() ? std::nullopt : std::optional(found->second);
  };
}

std::vector<TimedRange> UnitRun::time_all() {
  const PhaseClock clock(&context_.report.time_s);
  context_.report.num_timed += admitted_.size();
  TimeRequest request;
  request.problem = unit_.problem;
  request.ranges = unit_.ranges;
  request.defaults = unit_.defaults;
  request.candidates = admitted_;
  request.plan = plan_of(context_.options.effort);
  const TimingSizes sizes = timing_sizes(context_.measure.device());
  request.plan.max_rounds = std::min(request.plan.max_rounds, sizes.max_rounds);
  request.plan.plays_again = sizes.plays_again;
  request.known = recall_times();
  request.measure = [&](const Candidate& candidate, int kv_len, const TimerOptions& options) {
    return measure(candidate, kv_len, options);
  };
  request.stop = context_.stop;
  request.interrupted = context_.interrupted;
  request.dropped = [this] { return is_dropped_; };
  request.progress = [&](const Candidate& candidate, std::size_t done, std::size_t total) {
    report_progress("time", candidate.text(), done, total);
  };
  return time_candidates(request);
}

std::optional<Timing> UnitRun::measure(const Candidate& candidate, int kv_len,
                                       const TimerOptions& options) {
  const Binary& binary = *context_.compiles.find(candidate.variant(unit_.problem));
  auto outcome = context_.measure.time(candidate, binary, kv_len, options, context_.interrupted);
  if (auto* timing = std::get_if<Timing>(&outcome)) return std::move(*timing);
  if (auto* rejection = std::get_if<Rejection>(&outcome)) {
    rejection->detail = fmt::format("kv_len={} {}", kv_len, rejection->detail);
    reject(candidate, Stage::kTime, std::move(*rejection));
  } else {
    is_dropped_ = true;
  }
  return std::nullopt;
}

Winner UnitRun::make_winner(const Problem& problem,
                            const std::vector<CandidateMeasurements>& measured,
                            const Candidate& candidate) const {
  Winner winner;
  winner.problem = problem;
  winner.candidate = candidate;
  winner.toolchain = toolchain_of_family(candidate.family);
  winner.binary = *context_.compiles.find(candidate.variant(problem));
  winner.admission = admissions_.at(candidate);
  winner.measurements = find_measured(measured, candidate)->points;
  winner.driver_version = context_.measure.device().driver_version;
  winner.created_at = utc_timestamp();
  return winner;
}

// What a whole comparison has found, of whatever age, and is right today: one that was cut short
// takes nothing back.
std::optional<Winner> UnitRun::whole_winner(const Problem& problem) const {
  for (const Family& family : families_of(problem.op)) {
    if (is_disabled(family, context_.options.disabled_families)) continue;
    auto hit = context_.store.find_winner(context_.measure.device(), problem,
                                          toolchain_of_family(std::string(family.name)));
    if (!hit || !hit->is_exact() || hit->winner.method <= 0) continue;
    if (admissions_.count(hit->winner.candidate) > 0) return std::move(hit->winner);
  }
  return std::nullopt;
}

void UnitRun::commit(const TimedRange& timed, const Candidate& range_default,
                     const std::string& candidates_digest) {
  const Problem problem = problem_of(timed.range);
  const DeviceInfo& gpu = context_.measure.device();
  const auto measured = measurements_of(timed, gpu.driver_version);
  if (!timed.complete) {
    if (auto whole = whole_winner(problem)) {
      whole->binary.cubin.clear();
      context_.report.winners.push_back(std::move(*whole));
      ++context_.report.num_cached;
      return;
    }
  }
  const auto selection =
      timed.has_choice() ? select_winner(problem, measured, timed.rematch) : std::nullopt;
  if (!selection) {
    context_.report.failures.push_back(fmt::format(
        "{}: {}", problem.text(),
        timed.complete ? "no candidate could be timed" : "stopped before it was timed"));
    return;
  }
  Winner winner = make_winner(problem, measured, selection->winner);
  winner.worst_regret = selection->worst_regret;
  if (selection->runner_up) {
    winner.runner_up = selection->runner_up->text();
    winner.margin_runner_up = selection->runner_up_regret - selection->worst_regret;
  }
  winner.default_candidate = range_default.text();
  winner.margin_default = selection->over_default.median;
  winner.margin_default_low = selection->over_default.low;
  winner.effort = name_of(context_.options.effort);
  winner.candidates = candidates_digest;
  const bool all_tried =
      std::none_of(unit_.space.kept.begin(), unit_.space.kept.end(), [&](const Candidate& one) {
        return context_.compiles.is_unresolved(one.variant(unit_.problem));
      });
  winner.method = timed.complete && all_tried ? kTimingMethod : kPartialTimingMethod;
  for (const Family& family : families_of(unit_.problem.op)) {
    if (is_disabled(family, context_.options.disabled_families)) continue;  // what is known stays
    std::vector<CandidateMeasurements> of_family;
    std::copy_if(measured.begin(), measured.end(), std::back_inserter(of_family),
                 [&](const auto& one) { return one.candidate.family == family.name; });
    context_.store.put_measurements(gpu, problem, toolchain_of_family(std::string(family.name)),
                                    of_family);
  }
  context_.store.put_winner(gpu, winner);
  report_progress("store", problem.text(), 1, 1);
  winner.binary.cubin.clear();
  context_.report.winners.push_back(std::move(winner));
  ++context_.report.num_tuned;
}

void UnitRun::reject(const Candidate& candidate, Stage stage, Rejection rejection) {
  ++context_.report.num_rejected;
  const std::string reason(name_of(rejection.reason));
  auto& counts = context_.report.rejected_by_reason;
  auto count = std::find_if(counts.begin(), counts.end(),
                            [&](const auto& entry) { return entry.first == reason; });
  if (count == counts.end()) count = counts.insert(counts.end(), {reason, 0});
  ++count->second;
  const bool is_costly =
      rejection.reason == RejectReason::kLaunch || rejection.reason == RejectReason::kTimeout;
  rejections_.push_back({candidate, stage, std::move(rejection)});
  if (is_costly) store_rejections();  // so that a run that ends here need not find it again
}

void UnitRun::store_rejections() {
  for (const Family& family : families_of(unit_.problem.op)) {
    if (is_disabled(family, context_.options.disabled_families)) continue;
    std::vector<RejectionRecord> of_family;
    std::copy_if(rejections_.begin(), rejections_.end(), std::back_inserter(of_family),
                 [&](const auto& one) { return one.candidate.family == family.name; });
    const Toolchain toolchain = toolchain_of_family(std::string(family.name));
    for (const KvRange& range : unit_.ranges) {
      context_.store.put_rejections(context_.measure.device(), problem_of(range), toolchain,
                                    of_family);
    }
  }
}

void UnitRun::fail(const std::string& reason) {
  for (const KvRange& range : unit_.ranges) {
    context_.report.failures.push_back(fmt::format("{}: {}", problem_of(range).text(), reason));
  }
}

void UnitRun::report_progress(const char* phase, const std::string& what, std::size_t done,
                              std::size_t total) const {
  if (context_.options.progress) context_.options.progress({phase, what, done, total});
}

}  // namespace attune
