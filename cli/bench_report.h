// Measured winners against default and floor, as text, JSON and CSV.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/report.h"
#include "jit/device_info.h"
#include "runtime/attune.h"
#include "tuner/timer.h"
#include "tuner/tuner.h"

namespace attune {

struct BenchPoint {
  std::vector<int> kv_lens;  // of the sequences of the batch
  Timing served;
  Timing fallback;  // of the default candidate; as `served` where that is the default
};

struct BenchRow {
  Problem problem;
  std::string match;  // how the candidate came to be: name_of(Served), or "named" by the caller
  std::string candidate;
  std::string default_candidate;
  std::vector<BenchPoint> points;
  std::vector<RuleAudit> audit;  // with --register-rule
  int audit_kv_len = 0;
};

struct BenchOutcome {
  DeviceInfo gpu;
  Ceilings ceilings;
  std::vector<BenchRow> rows;
};

// The least time that the bytes and the FLOPs of sequences of these lengths can take, in us.
double floor_us(const Problem& problem, std::span<const int> kv_lens, const Ceilings& ceilings);

// "1024" where all sequences are of one length, else "512..65536".
std::string lengths_text(std::span<const int> kv_lens);

// "exact", "nearest", "default"
std::string_view name_of(Served served);

std::string bench_text(const BenchOutcome& outcome);
Json bench_json(const BenchOutcome& outcome);
// With a header line. `taken` is the time of the run, UTC.
std::string bench_csv(const BenchOutcome& outcome, const std::string& taken);
std::string audit_csv(const BenchOutcome& outcome, const std::string& taken);

}  // namespace attune
