// attune tune --check: whether a cache has a winner of every problem for one GPU.
#pragma once

#include <string>
#include <vector>

#include "cli/report.h"
#include "cli/stored_results.h"

namespace attune {

struct CheckedProblem {
  Problem problem;
  std::string state;  // "current", "partial", "older method", "other driver", "other gpu", "missing"
  std::string candidate;  // that is served; empty when missing
};

struct CheckOutcome {
  DeviceInfo device;
  std::string cache_path;
  std::vector<std::string> base_paths;
  std::vector<CheckedProblem> problems;
  double seconds = 0;

  std::size_t count(const std::string& state) const;
  bool is_complete() const { return count("current") == problems.size(); }
};

// `compiler_version` as in Scene::of.
CheckOutcome check_problems(const TuneStore& store, const DeviceInfo& device,
                            const std::vector<Problem>& problems,
                            const std::string& compiler_version);

std::string check_text(const CheckOutcome& outcome);
Json check_json(const CheckOutcome& outcome);
// 0: attune tune has nothing to do. 4: all are served, some would be timed again. 1: some are missing.
int check_exit_code(const CheckOutcome& outcome);

}  // namespace attune
