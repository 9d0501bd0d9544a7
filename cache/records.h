// The rows of the tuning cache as values.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/text.h"
#include "jit/binary.h"
#include "jit/device_info.h"
#include "templates/family.h"
#include "templates/problem.h"

namespace attune {

// What produced a binary, besides its source: a change of any field makes winners a miss.
struct Toolchain {
  Digest template_digest;        // of the family
  std::string compiler_version;  // "13.0" of NVRTC, "g++ 12.2.0" on the host
  std::string options;           // compile options, joined by spaces
  friend bool operator==(const Toolchain&, const Toolchain&) = default;
};

// The record that a candidate was right.
struct Admission {
  std::string reference;              // "cpu-double-1": the name and version of the reference
  int num_cases = 0;                  // sequences compared
  double relative_l2 = 0;             // over all outputs of the accuracy case
  double worst_case_relative_l2 = 0;  // of the worst sequence among the edge cases
  double max_abs_error = 0;
  std::string created_at;  // UTC, ISO 8601
};

// The time of a candidate at one kv_len.
struct Measurement {
  int kv_len = 0;
  double median_us = 0;
  double spread_us = 0;  // half the interquartile range
  double low_us = 0;     // the median's 95% confidence interval; both 0: not known
  double high_us = 0;
  int num_samples = 0;
  int num_dropped = 0;   // wild samples, and those of moments at which a clock jumped
  int sm_clock_mhz = 0;  // the lowest seen; 0: not known
  int memory_clock_mhz = 0;
  std::string throttle = {};  // what held the clocks back: "power+thermal"
  bool provisional = false;   // others ran on the device, or its clocks never settled
  int method = 0;             // version of the way of measuring (tuner/timer.h)
  std::string driver_version;
  std::string created_at;
};

struct CandidateMeasurements {
  Candidate candidate;
  std::vector<Measurement> points;
};

// Everything that is stored when a candidate wins a problem; one transaction.
struct Winner {
  Problem problem;
  Candidate candidate;
  Toolchain toolchain;
  Binary binary;  // `cubin` may be left out by listings
  Admission admission;
  std::vector<Measurement> measurements;  // at the points of problem.kv
  double worst_regret = 0;                // over the points: time / best time - 1
  std::string runner_up;                  // candidate text; empty when it was alone
  double margin_runner_up = 0;            // worst regret of the runner-up minus the winner's
  std::string default_candidate;
  // Default time / winner time - 1, the median over pairs of samples averaged over the points, and
  // what it is at least with 99.9% confidence; 0 for the default itself.
  double margin_default = 0;
  double margin_default_low = 0;
  int method = 0;
  std::string effort;      // of the tune: "quick", "normal", "exhaustive"; empty: not known
  std::string candidates;  // digest of the candidates it was chosen from; empty: not known
  std::string driver_version;
  std::string created_at;

  // Whether the times it was chosen by may not be the device's own.
  bool provisional() const {
    return std::any_of(measurements.begin(), measurements.end(),
                       [](const Measurement& point) { return point.provisional; });
  }
};

enum class Stage { kPrune, kCompile, kVerify, kTime };
enum class RejectReason {
  kUnsupported,
  kSmem,
  kThreads,
  kRegisters,
  kSpill,
  kStack,
  kPtxasNote,
  kCompile,
  kLaunch,
  kOutOfBounds,
  kWrongResult,
  kSlow,
  kTimeout
};
std::string_view name_of(Stage stage);
std::string_view name_of(RejectReason reason);
// The inverse of name_of; empty for any other text.
std::optional<Stage> parse_stage(std::string_view text);
std::optional<RejectReason> parse_reject_reason(std::string_view text);

struct Rejection {
  RejectReason reason;
  std::string detail;  // "smem_bytes=245760 limit=232448"
};

struct RejectionRecord {
  Candidate candidate;
  Stage stage;
  Rejection rejection;
};

// With where it belongs.
struct StoredRejection {
  std::string gpu_identity;
  Problem problem;
  Toolchain toolchain;
  RejectionRecord record;
  std::string created_at;
};

enum class Match {
  kExact,
  kNearestShape,
  kFamilyDefault
};  // every lookup says how good its answer is
// kStaleDriver: measured under another driver. kOlderMethod: measured in a way whose times no
// longer compare; named first when both hold. kOtherGpu: provisional, measured on the GPU that an
// alias names; named before all others.
enum class Freshness { kFresh, kStaleDriver, kOlderMethod, kOtherGpu };

}  // namespace attune
