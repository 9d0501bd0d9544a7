// A tune with bugs planted among its candidates, against one without: what the host device and a
// GPU have in common.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cache/tune_store.h"
#include "tests/support/planted_compiles.h"
#include "tests/tuner/scripted_times.h"
#include "tuner/isolated_measure.h"
#include "tuner/space.h"
#include "tuner/tuner.h"

namespace attune {

// What a tune left.
struct TuneTrace {
  TuneReport report;
  std::map<std::string, RejectionRecord> rejected;  // of what ran, by the candidate's text
  std::set<std::string> timed;                      // those with measurements
  Winner winner;
  int num_started = 0;  // worker processes
};

struct ExpectedRejection {
  Candidate candidate;
  Bug bug;
  Stage stage;
  RejectReason reason;
  std::string words;  // in the detail
};

// One tile holds all keys, so that every config has one candidate.
inline const Problem kIsolationProblem =
    Problem::parse("decode/b1/q1/kv1-16/h1x1/d64/contiguous/bf16");

// Of splitkv alone. Every tune has processes and a store of its own.
class IsolationBench {
 public:
  IsolationBench(CompileService& real, DeviceInfo on, IsolatedMeasureOptions options,
                 const Problem& asked = kIsolationProblem)
      : compiles(real),
        measure_options(std::move(options)),
        problem_(asked),
        device_(std::move(on)) {
    if (const char* path = std::getenv("ATTUNE_MEASURE_WORKER")) measure_options.worker_path = path;
    tune_options.disabled_families = {"swapab", "oneround"};
    tune_options.effort = Effort::kExhaustive;
  }

  // In the order in which a tune verifies them.
  std::vector<Candidate> candidates() const {
    const auto& off = tune_options.disabled_families;
    std::vector<Candidate> all = candidate_space(problem_, device_, off).kept;
    const Candidate first = default_candidate(problem_, device_, off);
    std::stable_partition(all.begin(), all.end(), [&](const auto& one) { return one == first; });
    return all;
  }
  void plant(const ExpectedRejection& one) {
    compiles.bugs[one.candidate.variant(problem_)] = one.bug;
  }

  // The third candidate is the fastest, the fourth so near that they have a rematch; of the others the
  // earlier ones.
  TuneTrace tune() {
    const std::vector<Candidate> order = candidates();
    IsolatedMeasure measure(measure_options, device_);
    ScriptedTimes times(measure, [&](const Candidate& one) {
      const auto at = std::find(order.begin(), order.end(), one) - order.begin();
      if (at == kFastest) return 97.0;
      return at == kFastest + 1 ? 98.5 : 103.0 + 0.5 * static_cast<double>(at);
    });
    const auto store = TuneStore::open_in_memory();
    TuneTrace trace;
    trace.report = Tuner(&times, *store, compiles).tune({problem_}, tune_options);
    trace.num_started = measure.num_started();
    const Toolchain toolchain =
        toolchain_of(*find_family("splitkv"), device_.arch, compiles.compiler_version());
    for (auto& one : store->rejections(device_, problem_, toolchain)) {
      if (one.stage != Stage::kPrune) trace.rejected.emplace(one.candidate.text(), one);
    }
    for (const auto& one : store->measurements(device_, problem_, toolchain)) {
      trace.timed.insert(one.candidate.text());
    }
    if (!trace.report.winners.empty()) trace.winner = trace.report.winners.front();
    return trace;
  }

  static constexpr std::ptrdiff_t kFastest = 2;
  PlantedCompiles compiles;
  IsolatedMeasureOptions measure_options;
  TuneOptions tune_options;

 private:
  const Problem problem_;
  const DeviceInfo device_;
};

// Exactly `expected` is rejected, each for its reason; everything else is as in `clean`.
inline void expect_only(const std::vector<ExpectedRejection>& expected, const TuneTrace& trace,
                        const TuneTrace& clean) {
  std::set<std::string> healthy = clean.timed;
  for (const ExpectedRejection& one : expected) {
    const std::string name = one.candidate.text();
    healthy.erase(name);
    const auto found = trace.rejected.find(name);
    ASSERT_NE(found, trace.rejected.end()) << name << " is not rejected: " << one.words;
    const Rejection& rejection = found->second.rejection;
    EXPECT_EQ(found->second.stage, one.stage) << name << ": " << rejection.detail;
    EXPECT_EQ(name_of(rejection.reason), name_of(one.reason)) << name << ": " << rejection.detail;
    EXPECT_NE(rejection.detail.find(one.words), std::string::npos)
        << one.words << " is not in: " << rejection.detail;
  }
  EXPECT_EQ(trace.rejected.size(), expected.size());
  for (const auto& [name, record] : trace.rejected) {
    EXPECT_FALSE(healthy.contains(name)) << name << ": " << record.rejection.detail;
  }
  EXPECT_EQ(trace.timed, healthy);
  EXPECT_TRUE(trace.report.complete);
  EXPECT_EQ(trace.winner.candidate, clean.winner.candidate);
  EXPECT_EQ(trace.winner.worst_regret, clean.winner.worst_regret);
  EXPECT_EQ(trace.winner.admission.relative_l2, clean.winner.admission.relative_l2);
}

}  // namespace attune
