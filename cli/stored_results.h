// What the cache knows about one problem on one GPU, put together from its families.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cache/tune_store.h"

namespace attune {

// One problem on one GPU; results of these compiler versions count.
struct Scene {
  const TuneStore& store;
  DeviceInfo gpu;
  Problem problem;
  std::set<std::string> compiler_versions;

  // `compiler_version`, or when it is empty (there is no compiler) all versions with winners of
  // this GPU.
  static Scene of(const TuneStore& store, const DeviceInfo& gpu, const Problem& problem,
                  const std::string& compiler_version);
  std::vector<Toolchain> toolchains() const;
};

// What would be served, by the rules of the runtime; empty for the default.
std::optional<WinnerHit> find_served(const Scene& scene);

// A candidate with what is known of it.
struct CandidateRow {
  Candidate candidate;
  std::vector<Measurement> points;     // within the problem's range, by kv_len
  std::optional<double> worst_regret;  // over kv_points(problem.kv); empty unless timed at all
  std::optional<RejectionRecord> rejected;
  std::size_t rank = 0;  // by the cost model, from 1 on; 0 for pruned ones
  int registers = 0;     // of the split kernel; 0 when it is not compiled
  int smem_bytes = 0;
};

// Every candidate of the space, timed ones first by regret, then untimed ones, then rejected and
// pruned ones.
std::vector<CandidateRow> candidate_rows(const Scene& scene);

// Why a winner is not what a tune of today would leave.
struct StaleReason {
  std::string label;       // "other driver"
  std::string text;        // "timed with driver 12.8, this is 13.0"
  bool is_served = false;  // served all the same, and timed again by the next tune
};
// Its template, compiler, options, method and driver against the scene's. An empty driver of the
// scene's GPU is not compared.
std::vector<StaleReason> stale_reasons(const Scene& scene, const Winner& winner);

// Why there is no exact winner though the cache has a relative of the problem: other GPUs, other
// toolchains, a field that differs. The nearest first, at most `limit` lines.
std::vector<std::string> miss_reasons(const Scene& scene, std::size_t limit);

// The fields in which two problems differ: "head_dim is 256, not 512".
std::vector<std::string> differing_fields(const Problem& asked, const Problem& tuned);

}  // namespace attune
