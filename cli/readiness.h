// attune tune --check: whether a cache has a winner of every problem for one GPU.
#pragma once

#include <string>
#include <vector>

#include "cli/report.h"
#include "cli/stored_results.h"

namespace attune {

struct ReadyProblem {
  Problem problem;
  std::string
      state;  // "current", "partial", "older method", "other driver", "other gpu", "missing"
  std::string candidate;  // that is served; empty when missing
};

struct Readiness {
  DeviceInfo device;
  std::string cache_path;  // empty where there is none yet
  std::vector<std::string> base_paths;
  std::vector<ReadyProblem> problems;
  double seconds = 0;

  std::size_t count(const std::string& state) const;
  bool is_complete() const { return count("current") == problems.size(); }
};

// `compiler_version` as in Scene::of.
Readiness readiness_of(const TuneStore& store, const DeviceInfo& device,
                       const std::vector<Problem>& problems, const std::string& compiler_version);

std::string readiness_text(const Readiness& outcome);
Json readiness_json(const Readiness& outcome);
// 0: attune tune has nothing to do. 4: all are served, some would be timed again. 1: some are missing.
int readiness_exit_code(const Readiness& outcome);

}  // namespace attune
