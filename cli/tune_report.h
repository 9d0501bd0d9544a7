// The result of a tune as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "cli/report.h"
#include "cli/stored_results.h"
#include "tuner/tuner.h"

namespace attune {

struct TuneOutcome {
  TuneReport report;
  DeviceInfo device;  // the architecture's limits when only compiled
  bool compiled_only = false;
  std::size_t num_binaries = 0;      // of the architecture that the cache holds now
  std::vector<std::string> missing;  // kernels that --measure-only found no binary of
  std::string cache_path;
  Problem problem;                       // the one problem, when there was one
  std::vector<CandidateRow> candidates;  // of it; empty otherwise
};

std::string tune_text(const TuneOutcome& outcome);
Json tune_json(const TuneOutcome& outcome);
// `interrupt_code` is the one to give after Ctrl-C.
int tune_exit_code(const TuneReport& report, int interrupt_code);

// The timed candidates at the largest kv_len: rank, family, config, splits, time, bandwidth,
// registers, shared memory. At most `limit` rows.
std::string ranking_text(const Problem& problem, const std::vector<CandidateRow>& rows,
                         std::size_t limit);

// The measurement at the largest kv_len; nullptr without one.
const Measurement* last_point(const std::vector<Measurement>& points);

}  // namespace attune
