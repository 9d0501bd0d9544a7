// Results of a GPU that is not here, as a tune on it would have stored them.
#pragma once

#include <string>

#include "cache/tune_store.h"
#include "jit/compiler.h"
#include "tuner/space.h"
#include "tuner/tuner.h"

namespace attune {

constexpr const char* kTuned = "decode/b1/q1/kv1-4096/h8x2/d128/contiguous/bf16";
constexpr const char* kNvrtc = "99.9";  // of no machine that runs the tests

inline DeviceInfo made_up_gpu(const std::string& name = "NVIDIA H200") {
  DeviceInfo gpu = architecture_limits("sm_90a");
  gpu.name = name;
  gpu.driver_version = "13.0";
  return gpu;
}

inline Measurement made_up_point(int kv_len, double us) {
  return {.kv_len = kv_len,
          .median_us = us,
          .spread_us = 0.11,
          .num_samples = 9,
          .method = kTimingMethod,
          .driver_version = "13.0",
          .created_at = "2025-01-02T03:04:05Z"};
}

// The candidates of kTuned, each slower than the one before at every point.
inline std::vector<CandidateMeasurements> made_up_measurements(const Problem& problem,
                                                               const DeviceInfo& gpu) {
  std::vector<CandidateMeasurements> all;
  double us = 5;
  for (const Candidate& candidate : candidate_space(problem, gpu).kept) {
    CandidateMeasurements& one = all.emplace_back();
    one.candidate = candidate;
    for (int kv_len = problem.kv.min; kv_len <= problem.kv.max; kv_len *= 2) {
      one.points.push_back(made_up_point(kv_len, us));
    }
    us *= 1.1;
    if (all.size() == 3) break;
  }
  return all;
}

// Stores a winner of `text` with two slower candidates and one that was rejected.
inline Winner store_made_up_winner(TuneStore& store, const std::string& text = kTuned,
                                   const DeviceInfo& gpu = made_up_gpu()) {
  const Problem problem = Problem::parse(text);
  const auto measurements = made_up_measurements(problem, gpu);
  Winner winner;
  winner.problem = problem;
  winner.candidate = measurements.at(0).candidate;
  winner.toolchain = toolchain_of(*find_family(winner.candidate.family), gpu.arch, kNvrtc);
  for (const char letter : text) winner.binary.cubin.push_back(static_cast<std::byte>(letter));
  winner.binary.key = digest_of(text);
  winner.binary.content = digest_of(winner.binary.cubin);
  winner.binary.arch = gpu.arch;
  winner.binary.compiler_version = kNvrtc;
  winner.binary.options = winner.toolchain.options;
  winner.admission = {.reference = "cpu-double-1",
                      .num_cases = 12,
                      .relative_l2 = 1.9e-3,
                      .worst_case_relative_l2 = 3e-3,
                      .max_abs_error = 0.01,
                      .created_at = "2025-01-02T03:04:05Z"};
  winner.measurements = measurements.at(0).points;
  winner.runner_up = measurements.at(1).candidate.text();
  winner.margin_runner_up = 0.1;
  winner.default_candidate = measurements.at(2).candidate.text();
  winner.margin_default = 0.21;
  winner.method = kTimingMethod;
  winner.driver_version = "13.0";
  winner.created_at = "2025-01-02T03:04:05Z";
  store.put_measurements(gpu, problem, winner.toolchain, measurements);
  const Candidate wrong = candidate_space(problem, gpu).kept.back();
  const RejectionRecord rejection{
      wrong, Stage::kVerify, {RejectReason::kWrongResult, "relative_l2=0.5 limit=0.0025"}};
  store.put_rejections(gpu, problem, winner.toolchain, std::vector{rejection});
  store.put_winner(gpu, winner);
  return winner;
}

}  // namespace attune
