// What a tuning cache holds, put together for attune report: per GPU the winners with their default
// and floor, what is stale, what is missing and what was rejected.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/report.h"
#include "cli/stored_results.h"
#include "tuner/timer.h"

namespace attune {

// What the results of a GPU are compared with.
struct Today {
  std::string driver_version;
  std::string compiler_version;
  bool is_here = false;  // of this machine; else of the GPU's latest winner
};

// Ceilings that attune bench measured on a GPU.
struct MeasuredCeilings {
  std::string gpu_name, arch;
  int num_sms = 0;
  Ceilings ceilings;
};
// Reads what `attune bench --json` wrote. Throws InvalidArgument.
MeasuredCeilings read_ceilings(const std::string& file);

struct ReportPoint {
  Measurement served;
  std::optional<Measurement> fallback;  // of the default candidate
  std::optional<double> floor_us;
};

struct ReportWinner {
  Winner winner;
  std::vector<ReportPoint> points;  // at the winner's lengths
  std::vector<StaleReason> stale;
  bool is_served =
      false;  // is what its problem gets; another tune's winner may have taken its place
};

// A problem without an exact winner.
struct ReportGap {
  Problem problem;
  std::string match;      // "nearest", "default", "none", "other gpu"
  std::string candidate;  // that is served; empty for "none"
  std::string reason;
  std::string tune_command;
};

struct ReportGpu {
  std::string identity;
  Today today;
  std::optional<Ceilings> ceilings;
  bool are_ceilings_measured = false;
  std::vector<ReportWinner> winners;
  std::vector<ReportGap> gaps;
  std::vector<StoredRejection> rejections;  // of the latest tune of each problem and family
};

struct TuningReport {
  std::string cache_path;
  std::vector<std::string> base_paths;
  std::string created_at;  // UTC
  std::vector<ReportGpu> gpus;
};

// What is asked for and what is known besides the cache.
struct ReportScope {
  std::string gpu;                // part of a name; empty: all
  std::vector<Problem> problems;  // empty: all of the cache, and gaps are those of tuned problems
  std::vector<std::pair<std::string, Today>> here;  // by identity
  std::vector<MeasuredCeilings> ceilings;
};

TuningReport tuning_report(const TuneStore& store, const ReportScope& scope);

// The mean over the batches that a kernel is timed with at `kv_len`.
double judged_floor_us(const Problem& problem, int kv_len, const Ceilings& ceilings);

// The causes of rejections, the most frequent first, with indices into the list they are counted in.
struct RejectionGroup {
  Stage stage;
  RejectReason reason;
  std::vector<std::size_t> rows;
};
std::vector<RejectionGroup> group_rejections(const std::vector<StoredRejection>& rejections);

Json tuning_report_json(const TuningReport& report);

}  // namespace attune
