#include "tuner/tuner.h"

#include <algorithm>
#include <chrono>
#include <set>

#include <fmt/format.h>

#include "common/error.h"
#include "tuner/search.h"
#include "tuner/unit_run.h"

namespace attune {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void count(std::vector<std::pair<std::string, std::size_t>>* counts, std::string_view reason) {
  for (auto& [known, number] : *counts) {
    if (known == reason) {
      ++number;
      return;
    }
  }
  counts->emplace_back(reason, 1);
}

Problem with_range(Problem problem, const KvRange& range) {
  problem.kv = range;
  return problem;
}

KvRange span_of(const std::vector<KvRange>& ranges) {
  KvRange span = ranges.front();
  for (const KvRange& range : ranges) {
    span = {std::min(span.min, range.min), std::max(span.max, range.max)};
  }
  return span;
}

std::set<Variant> variants_of(const PendingUnit& unit) {
  std::set<Variant> variants;
  for (const Candidate& candidate : unit.space.kept) {
    variants.insert(candidate.variant(unit.problem));
  }
  return variants;
}

// The state of one tune() or compile_all() call.
class Run {
 public:
  Run(TuneStore& store, CompileService& compiles, const DeviceInfo& device,
      const TuneOptions& options)
      : store_(store),
        compiles_(compiles),
        device_(device),
        options_(options),
        stage_(store, compiles, device.arch) {}

  // Ctrl-C; remembers that it was pressed.
  bool interrupted() {
    if (!report_.interrupted && options_.stop && options_.stop()) report_.interrupted = true;
    if (report_.interrupted) report_.complete = false;
    return report_.interrupted;
  }
  bool should_stop() {
    const bool over_budget = options_.budget_s > 0 && seconds_since(start_) > options_.budget_s;
    if (over_budget) report_.complete = false;
    return interrupted() || over_budget;
  }

  // The ranges without a fresh winner, with their candidates. `look_up` false: all ranges.
  void plan(const std::vector<Problem>& problems, bool look_up) {
    for (const TuneUnit& unit : group_problems(problems)) {
      PendingUnit pending{unit.problem, {}, {}, {}, {}};
      for (const KvRange& range : unit.ranges) {
        ++report_.num_problems;
        const Problem problem = with_range(unit.problem, range);
        SearchPlan search =
            plan_search(problem, device_, options_.effort, options_.disabled_families);
        if (look_up && find_cached(problem, search)) continue;
        add_range(problem, std::move(search), &pending);
      }
      if (pending.ranges.empty()) continue;
      pending.problem.kv = span_of(pending.ranges);
      // What one range leaves out and another tries is tried.
      std::erase_if(pending.space.pruned, [&](const PrunedCandidate& one) {
        return std::binary_search(pending.space.kept.begin(), pending.space.kept.end(),
                                  one.candidate);
      });
      for (const PrunedCandidate& one : pending.space.pruned) {
        count(&report_.pruned_by_reason, name_of(one.rejection.reason));
      }
      report_.num_pruned += pending.space.pruned.size();
      report_.num_candidates += pending.space.pruned.size() + pending.space.kept.size();
      units_.push_back(std::move(pending));
    }
  }

  void compile() {
    std::set<Variant> variants;
    for (const PendingUnit& unit : units_) variants.merge(variants_of(unit));
    const Clock::time_point start = Clock::now();
    const auto progress = [&](const std::string& what, std::size_t done, std::size_t total) {
      if (options_.progress) options_.progress({"compile", what, done, total});
    };
    if (!variants.empty()) {
      stage_.run(variants, true, options_.refresh, progress, [&] { return should_stop(); });
    }
    report_.num_compiled = stage_.num_compiled();
    if (stage_.num_unresolved() > 0) report_.complete = false;
    report_.compile_s = seconds_since(start);
  }

  // Rejections that need no device; a unit of which nothing is left has failed.
  void count_compiled_rejections() {
    for (const PendingUnit& unit : units_) {
      std::size_t num_left = unit.space.kept.size();
      std::string example;
      for (const Candidate& candidate : unit.space.kept) {
        const auto rejection = compiled_rejection(unit, candidate);
        if (!rejection) continue;
        ++report_.num_rejected;
        count(&report_.rejected_by_reason, name_of(rejection->reason));
        if (num_left-- == unit.space.kept.size()) {
          example = fmt::format("{}: {}", candidate.text(), rejection->detail);
        }
      }
      if (num_left > 0) continue;
      for (const KvRange& range : unit.ranges) {
        report_.failures.push_back(fmt::format("{}: no candidate compiled; {}",
                                               with_range(unit.problem, range).text(), example));
      }
    }
  }

  void tune_units(MeasureService& measure) {
    if (units_.empty()) return;
    if (stage_.probes() == nullptr && !should_stop()) {
      throw CompileError("the measuring kernels do not compile",
                         fmt::format("arch={}", device_.arch), stage_.probes_failure(),
                         probe_source(device_.arch).text);
    }
    UnitContext context{measure,
                        store_,
                        stage_,
                        compiles_.compiler_version(),
                        options_,
                        [this] { return should_stop(); },
                        [this] { return interrupted(); },
                        report_};
    for (const PendingUnit& unit : units_) {
      if (should_stop()) {
        for (const KvRange& range : unit.ranges) {
          report_.failures.push_back(with_range(unit.problem, range).text() +
                                     ": stopped before it was tuned");
        }
        continue;
      }
      UnitRun(context, unit).run();
    }
  }

  TuneReport finish() {
    report_.total_s = seconds_since(start_);
    return std::move(report_);
  }

 private:
  // A winner is done with when it was chosen with as much effort from the same candidates.
  bool is_chosen_well(const Winner& winner, const SearchPlan& search) const {
    const auto effort = parse_effort(winner.effort);
    if (!effort || *effort < options_.effort) return false;
    return *effort != options_.effort || winner.candidates.empty() || search.digest.empty() ||
           winner.candidates == search.digest;
  }

  bool find_cached(const Problem& problem, const SearchPlan& search) {
    if (options_.refresh) return false;
    for (const Family& family : families_of(problem.op)) {
      if (is_disabled(family, options_.disabled_families)) continue;
      const Toolchain toolchain = toolchain_of(family, device_.arch, compiles_.compiler_version());
      auto hit = store_.find_winner(device_, problem, toolchain, kTimingMethod);
      if (!hit || hit->match != Match::kExact || hit->freshness != Freshness::kFresh) continue;
      if (!is_chosen_well(hit->winner, search)) continue;
      hit->winner.binary.cubin.clear();
      report_.winners.push_back(std::move(hit->winner));
      ++report_.num_cached;
      return true;
    }
    return false;
  }

  // Empty also for what was not reached.
  std::optional<Rejection> compiled_rejection(const PendingUnit& unit,
                                              const Candidate& candidate) const {
    const Variant variant = candidate.variant(unit.problem);
    if (const Binary* binary = stage_.find(variant)) {
      return prune_compiled(*binary, plan_launch(unit.problem, candidate), device_);
    }
    const std::string* log = stage_.failure(variant);
    if (log == nullptr) return std::nullopt;
    return Rejection{RejectReason::kCompile, log->substr(0, log->find('\n'))};
  }

  void add_range(const Problem& problem, SearchPlan search, PendingUnit* unit) {
    const auto& disabled = options_.disabled_families;
    CandidateSpace& space = search.space;
    if (space.kept.empty()) {
      try {
        default_candidate(problem, device_, disabled);
      } catch (const InvalidArgument& error) {
        report_.failures.push_back(fmt::format("{}: {}", problem.text(), error.what()));
      }
      return;
    }
    unit->ranges.push_back(problem.kv);
    unit->defaults.push_back(search.default_candidate);
    unit->candidates.push_back(std::move(search.digest));
    add_pruned(std::move(space.pruned), &unit->space.pruned);
    auto& kept = unit->space.kept;
    kept.insert(kept.end(), space.kept.begin(), space.kept.end());
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  }

  // A config is dropped whatever the range is; the split caps and the ranks differ.
  static void add_pruned(std::vector<PrunedCandidate> more, std::vector<PrunedCandidate>* pruned) {
    for (PrunedCandidate& one : more) {
      const bool is_known = std::any_of(pruned->begin(), pruned->end(), [&](const auto& known) {
        return known.candidate == one.candidate;
      });
      if (!is_known) pruned->push_back(std::move(one));
    }
  }

  TuneStore& store_;
  CompileService& compiles_;
  const DeviceInfo device_;
  const TuneOptions& options_;
  CompileStage stage_;
  std::vector<PendingUnit> units_;
  TuneReport report_;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

std::vector<TuneUnit> group_problems(const std::vector<Problem>& problems) {
  std::vector<TuneUnit> units;
  for (const Problem& problem : problems) {
    problem.validate();
    const auto unit = std::find_if(units.begin(), units.end(), [&](const TuneUnit& one) {
      return with_range(one.problem, problem.kv) == problem;
    });
    if (unit == units.end()) {
      units.push_back({problem, {problem.kv}});
      continue;
    }
    auto& ranges = unit->ranges;
    if (std::find(ranges.begin(), ranges.end(), problem.kv) == ranges.end()) {
      ranges.push_back(problem.kv);
    }
    unit->problem.kv = span_of(ranges);
  }
  return units;
}

Tuner::Tuner(MeasureService* measure, TuneStore& store, const Compiler& compiler, CompilePool& pool)
    : measure_(measure),
      store_(store),
      owned_compiles_(compile_service(compiler, pool)),
      compiles_(*owned_compiles_) {}

Tuner::Tuner(MeasureService* measure, TuneStore& store, CompileService& compiles)
    : measure_(measure), store_(store), compiles_(compiles) {}

Tuner::~Tuner() = default;

TuneReport Tuner::tune(const std::vector<Problem>& problems, const TuneOptions& options) {
  if (measure_ == nullptr) {
    throw DeviceUnavailable("cannot tune without a GPU", "",
                            "use compile_all, or 'attune tune --compile-only --arch sm_90a'");
  }
  Run run(store_, compiles_, measure_->device(), options);
  run.plan(problems, true);
  run.compile();
  run.tune_units(*measure_);
  return run.finish();
}

TuneReport Tuner::compile_all(const std::vector<Problem>& problems, const std::string& arch,
                              const TuneOptions& options) {
  // Which candidates an effort leaves out depends on the device that will time them.
  TuneOptions all = options;
  all.effort = Effort::kExhaustive;
  Run run(store_, compiles_, architecture_limits(arch), all);
  run.plan(problems, false);
  run.compile();
  run.count_compiled_rejections();
  return run.finish();
}

}  // namespace attune
