// Runs the stages in order: space, compile, verify, time, select, store. Resumes, stops in budget,
// reports progress.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/tune_store.h"
#include "jit/compile_pool.h"
#include "tuner/compile_stage.h"
#include "tuner/effort.h"
#include "tuner/measure_service.h"
#include "tuner/timer.h"

namespace attune {

// Problems that differ only in their kv range, tuned together: each candidate is measured once at
// every point.
struct TuneUnit {
  Problem problem;              // kv spans all ranges
  std::vector<KvRange> ranges;  // one winner each
};
std::vector<TuneUnit> group_problems(const std::vector<Problem>& problems);

// The method of a winner that the budget chose before all candidates were timed: it is served, and
// the next run finishes the comparison.
constexpr int kPartialTimingMethod = -kTimingMethod;

struct TuneProgress {
  std::string phase;  // "compile", "verify", "time", "store"
  std::string what;   // candidate or problem text
  std::size_t done = 0;
  std::size_t total = 0;
};

struct TuneOptions {
  double budget_s = 0;   // 0: none
  bool refresh = false;  // tune even where a fresh winner exists
  Effort effort = Effort::kNormal;
  std::uint64_t seed = 1;
  std::vector<std::string> disabled_families;  // not tried, and their winners do not count
  std::function<void(const TuneProgress&)> progress;
  Stop stop;  // polled between candidates and while one runs (Ctrl-C)
};

struct TuneReport {
  std::size_t num_problems = 0, num_cached = 0, num_tuned = 0;
  std::size_t num_candidates = 0, num_pruned = 0, num_compiled = 0, num_rejected = 0, num_timed = 0;
  std::vector<std::pair<std::string, std::size_t>> pruned_by_reason, rejected_by_reason;
  std::vector<Winner> winners;        // of this run and the cached ones, without cubins
  std::vector<std::string> failures;  // problems without a winner, with the reason
  double compile_s = 0, verify_s = 0, time_s = 0, total_s = 0;
  bool complete = true;      // false: budget or stop
  bool interrupted = false;  // by `stop`
};

// One candidate of a register-rule audit. Spills do not disqualify it here.
struct RuleAudit {
  Candidate candidate;
  bool within_rule = false;   // the one to beat: the stored winner, else the default
  Measurement measurement;    // empty (num_samples 0) when `failure` is set
  KernelResources resources;  // of the split kernel
  std::string failure;        // why it has no time
};

class Tuner {
 public:
  // `measure` may be null: then only compile_all works. All have to outlive the tuner.
  Tuner(MeasureService* measure, TuneStore& store, const Compiler& compiler, CompilePool& pool);
  Tuner(MeasureService* measure, TuneStore& store, CompileService& compiles);
  ~Tuner();

  // Finds and stores the winner of every problem. Throws DeviceUnavailable when the device cannot
  // be opened any more; the winners and rejections so far are stored.
  TuneReport tune(const std::vector<Problem>& problems, const TuneOptions& options);

  // Compiles every candidate for an architecture and stores the binaries; needs no GPU.
  TuneReport compile_all(const std::vector<Problem>& problems, const std::string& arch,
                         const TuneOptions& options);

  // Compiles, verifies and times the candidates that only the register rule dropped, next to the
  // winner; best first, failures last. What `stop` left out is a failure.
  std::vector<RuleAudit> audit_register_rule(const Problem& problem, int kv_len,
                                             const Stop& stop = {});

 private:
  MeasureService* measure_;
  TuneStore& store_;
  std::unique_ptr<CompileService> owned_compiles_;
  CompileService& compiles_;
};

}  // namespace attune
