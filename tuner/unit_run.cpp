#include "tuner/unit_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
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

// Geometric mean of slow / fast over their common points, minus 1; 0 without one.
double mean_margin(const CandidateMeasurements& slow, const CandidateMeasurements& fast) {
  double log_sum = 0;
  int count = 0;
  for (const Measurement& a : slow.points) {
    for (const Measurement& b : fast.points) {
      if (a.kv_len != b.kv_len) continue;
      log_sum += std::log(a.median_us / b.median_us);
      ++count;
    }
  }
  return count == 0 ? 0 : std::exp(log_sum / count) - 1;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

const AttentionKernels& KernelTable::load(const Binary& binary, const Problem& problem,
                                          const Candidate& candidate) {
  const Variant variant = candidate.variant(problem);
  auto loaded = loaded_.find(variant);
  if (loaded == loaded_.end()) {
    loaded = loaded_
                 .emplace(variant,
                          load_attention(device_, binary, variant, plan_launch(problem, candidate)))
                 .first;
  }
  return loaded->second;
}

void require_usable(Device& device, const Candidate& culprit) {
  try {
    device.synchronize(nullptr);
    const DeviceMem probe = device.allocate(sizeof(int));
    device.fill_bytes(probe.ptr(), 0, probe.bytes(), nullptr);
    device.synchronize(nullptr);
  } catch (const CudaError& error) {
    throw CudaError("a candidate left the device unusable", error.code(), error.name(),
                    fmt::format("candidate={}", culprit.text()),
                    "run again: it is remembered as rejected and left out");
  }
}

UnitRun::UnitRun(UnitContext& context, const PendingUnit& unit)
    : context_(context), unit_(unit), kernels_(context.device) {}

void UnitRun::run() {
  for (const PrunedCandidate& one : unit_.space.pruned) {
    rejections_.push_back({one.candidate, Stage::kPrune, one.rejection});
  }
  recall_rejections();
  verify_all();
  store_rejections();
  if (context_.stop()) return fail("stopped before it was timed");
  if (admitted_.empty()) return fail("no candidate is right; 'attune explain' lists why");
  std::vector<TimedRange> timed;
  try {
    timed = time_all();
  } catch (const CudaError&) {
    throw;
  } catch (const Error& error) {  // its buffers do not fit
    return fail(error.what());
  }
  store_rejections();
  for (std::size_t i = 0; i < timed.size(); ++i) commit(timed[i], unit_.defaults[i]);
}

Problem UnitRun::problem_of(const KvRange& range) const {
  Problem problem = unit_.problem;
  problem.kv = range;
  return problem;
}

Toolchain UnitRun::toolchain_of_family(const std::string& family) const {
  return toolchain_of(*find_family(family), context_.device.info().arch, context_.compiler_version);
}

// A launch that failed once may leave the device unusable, so it is not tried again.
void UnitRun::recall_rejections() {
  if (context_.options.refresh) return;
  for (const Family& family : families()) {
    const Toolchain toolchain = toolchain_of_family(std::string(family.name));
    for (const KvRange& range : unit_.ranges) {
      for (const RejectionRecord& record :
           context_.store.rejections(context_.device.info(), problem_of(range), toolchain)) {
        const RejectReason reason = record.rejection.reason;
        // Somebody else's memory, perhaps: it may be free now.
        if (record.rejection.detail.find("CUDA_ERROR_OUT_OF_MEMORY") != std::string::npos) continue;
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
  const std::vector<VerifyCase> cases = verify_cases(unit_.problem, context_.options.seed);
  Verifier verifier(context_.device, cases);
  // Defaults first: they are what everything else is compared with.
  std::vector<Candidate> order = unit_.space.kept;
  std::stable_partition(order.begin(), order.end(), [&](const Candidate& candidate) {
    return std::find(unit_.defaults.begin(), unit_.defaults.end(), candidate) !=
           unit_.defaults.end();
  });
  std::size_t done = 0;
  for (const Candidate& candidate : order) {
    if (context_.stop()) return;
    if (verify_one(verifier, candidate)) admitted_.push_back(candidate);
    report_progress("verify", candidate.text(), ++done, order.size());
  }
}

bool UnitRun::verify_one(Verifier& verifier, const Candidate& candidate) {
  if (const auto known = remembered_.find(candidate); known != remembered_.end()) {
    reject(candidate, known->second.stage, known->second.rejection);
    return false;
  }
  const Variant variant = candidate.variant(unit_.problem);
  const Binary* binary = context_.compiles.find(variant);
  if (binary == nullptr) {
    const std::string* log = context_.compiles.failure(variant);
    if (log != nullptr) {
      reject(candidate, Stage::kCompile, {RejectReason::kCompile, first_line(*log)});
    }
    return false;
  }
  const LaunchPlan plan = plan_launch(unit_.problem, candidate);
  if (auto rejection = prune_compiled(*binary, plan, context_.device.info())) {
    reject(candidate, Stage::kCompile, std::move(*rejection));
    return false;
  }
  std::variant<Admission, Rejection> outcome;
  try {
    outcome = verifier.verify(kernels_.load(*binary, unit_.problem, candidate), candidate);
  } catch (const CudaError& error) {
    outcome = Rejection{RejectReason::kLaunch, error.what()};
  }
  if (auto* rejection = std::get_if<Rejection>(&outcome)) {
    const bool launch_failed = rejection->reason == RejectReason::kLaunch;
    reject(candidate, Stage::kVerify, std::move(*rejection));
    if (launch_failed) require_usable(context_.device, candidate);
    return false;
  }
  admissions_[candidate] = std::get<Admission>(outcome);
  return true;
}

std::vector<TimedRange> UnitRun::time_all() {
  const PhaseClock clock(&context_.report.time_s);
  AttentionTimer timer(context_.device, *context_.compiles.probes(), unit_.problem);
  context_.report.num_timed += admitted_.size();
  TimeRequest request;
  request.problem = unit_.problem;
  request.ranges = unit_.ranges;
  request.defaults = unit_.defaults;
  request.candidates = admitted_;
  request.measure = [&](const Candidate& candidate, int kv_len, const TimerOptions& options) {
    return measure(timer, candidate, kv_len, options);
  };
  request.stop = context_.stop;
  request.interrupted = context_.interrupted;
  request.progress = [&](const Candidate& candidate, std::size_t done, std::size_t total) {
    report_progress("time", candidate.text(), done, total);
  };
  return time_candidates(request);
}

std::optional<Timing> UnitRun::measure(AttentionTimer& timer, const Candidate& candidate,
                                       int kv_len, const TimerOptions& options) {
  const Binary& binary = *context_.compiles.find(candidate.variant(unit_.problem));
  try {
    return timer.measure(kernels_.load(binary, unit_.problem, candidate), candidate, kv_len,
                         options);
  } catch (const CudaError& error) {
    reject(candidate, Stage::kTime, {RejectReason::kLaunch, error.what()});
    require_usable(context_.device, candidate);
  } catch (const Error& error) {
    reject(candidate, Stage::kTime, {RejectReason::kTimeout, error.what()});
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
  winner.driver_version = context_.device.info().driver_version;
  winner.created_at = utc_timestamp();
  return winner;
}

void UnitRun::commit(const TimedRange& timed, const Candidate& range_default) {
  const Problem problem = problem_of(timed.range);
  const DeviceInfo& gpu = context_.device.info();
  const auto measured = measurements_of(timed, gpu.driver_version);
  const auto selection = select_winner(problem, measured);
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
  const auto* of_winner = find_measured(measured, selection->winner);
  if (const auto* of_default = find_measured(measured, range_default)) {
    winner.margin_default = mean_margin(*of_default, *of_winner);
  }
  const bool all_tried =
      std::none_of(unit_.space.kept.begin(), unit_.space.kept.end(), [&](const Candidate& one) {
        return context_.compiles.is_unresolved(one.variant(unit_.problem));
      });
  winner.method = timed.complete && all_tried ? kTimingMethod : kPartialTimingMethod;
  for (const Family& family : families()) {
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
  const bool launch_failed = rejection.reason == RejectReason::kLaunch;
  rejections_.push_back({candidate, stage, std::move(rejection)});
  if (launch_failed) store_rejections();  // the process may not live to the end of the unit
}

void UnitRun::store_rejections() {
  for (const Family& family : families()) {
    if (is_disabled(family, context_.options.disabled_families)) continue;
    std::vector<RejectionRecord> of_family;
    std::copy_if(rejections_.begin(), rejections_.end(), std::back_inserter(of_family),
                 [&](const auto& one) { return one.candidate.family == family.name; });
    const Toolchain toolchain = toolchain_of_family(std::string(family.name));
    for (const KvRange& range : unit_.ranges) {
      context_.store.put_rejections(context_.device.info(), problem_of(range), toolchain,
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
