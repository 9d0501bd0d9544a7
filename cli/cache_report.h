// What the tuning cache holds, as text and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cache/tune_store.h"
#include "cli/report.h"

namespace attune {

using WinnersByGpu = std::vector<std::pair<std::string, Winner>>;

std::string list_text(const WinnersByGpu& winners, std::int64_t now);
Json list_json(const WinnersByGpu& winners);

// One problem on one GPU.
struct StoredProblem {
  std::string identity;
  Winner winner;
  std::vector<RejectionRecord> rejections;
  std::size_t num_measured = 0;  // candidates
};
std::string show_text(const std::vector<StoredProblem>& stored, std::int64_t now);
Json show_json(const std::vector<StoredProblem>& stored);

std::string stats_text(const CacheStats& stats);
Json stats_json(const CacheStats& stats);

// "current", or why a winner of this program would not be served or would be timed again:
// "partial", "older method", "older template".
std::string state_of(const Winner& winner);
// "NVIDIA H200 (sm_90a)" of a stored identity.
std::string gpu_text(const std::string& identity);

}  // namespace attune
