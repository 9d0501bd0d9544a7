// One unit of a tune: has its candidates verified and timed, and stores what wins.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tuner/compile_stage.h"
#include "tuner/measure_service.h"
#include "tuner/space.h"
#include "tuner/time_stage.h"
#include "tuner/tuner.h"

namespace attune {

// A unit with the ranges that still need a winner.
struct PendingUnit {
  Problem problem;  // kv spans `ranges`
  std::vector<KvRange> ranges;
  std::vector<Candidate> defaults;      // of each range
  std::vector<std::string> candidates;  // of each range: digest_of_candidates
  CandidateSpace space;                 // of all ranges together
};

struct UnitContext {
  MeasureService& measure;
  TuneStore& store;
  const CompileStage& compiles;
  std::string compiler_version;
  const TuneOptions& options;
  std::function<bool()> stop;         // budget or Ctrl-C
  std::function<bool()> interrupted;  // Ctrl-C only
  TuneReport& report;
};

class UnitRun {
 public:
  UnitRun(UnitContext& context, const PendingUnit& unit);
  ~UnitRun() { context_.measure.close(); }
  UnitRun(const UnitRun&) = delete;
  UnitRun& operator=(const UnitRun&) = delete;

  // Throws DeviceUnavailable when there is no device to go on with; what was stored stays.
  void run();

 private:
  void recall_rejections();
  void verify_all();
  void verify_one(const Candidate& candidate);
  const Binary* usable_binary(const Candidate& candidate);
  std::function<std::optional<Timing>(const Candidate&, int)> recall_times() const;
  std::vector<TimedRange> time_all();
  std::optional<Timing> measure(const Candidate& candidate, int kv_len,
                                const TimerOptions& options);
  std::optional<Winner> whole_winner(const Problem& problem) const;
  void commit(const TimedRange& timed, const Candidate& range_default,
              const std::string& candidates_digest);
  Winner make_winner(const Problem& problem, const std::vector<CandidateMeasurements>& measured,
                     const Candidate& candidate) const;
  void reject(const Candidate& candidate, Stage stage, Rejection rejection);
  void store_rejections();
  void fail(const std::string& reason);
  Problem problem_of(const KvRange& range) const;
  Toolchain toolchain_of_family(const std::string& family) const;
  void report_progress(const char* phase, const std::string& what, std::size_t done,
                       std::size_t total) const;

  UnitContext& context_;
  const PendingUnit& unit_;
  std::vector<Candidate> admitted_;
  bool is_dropped_ = false;  // a candidate was stopped while it was timed
  std::map<Candidate, Admission> admissions_;
  std::vector<RejectionRecord> rejections_;
  std::map<Candidate, RejectionRecord> remembered_;  // launches that failed in an earlier run
};

}  // namespace attune
