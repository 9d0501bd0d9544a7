// What would be served for a problem, and why; what became of every candidate.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/report.h"
#include "cli/stored_results.h"

namespace attune {

// Why candidates were dropped, the most frequent cause first.
struct RejectionCause {
  std::string cause;  // "prune: smem"
  std::size_t count = 0;
  std::string example;  // of the first candidate, with the numbers
};
std::vector<RejectionCause> causes_of(const std::vector<CandidateRow>& rows);

// What would be served.
struct Answer {
  std::string match;      // "exact", "nearest", "default", "none"
  std::string candidate;  // empty for "none"
  std::string reason;
  std::optional<WinnerHit> hit;  // the winner, where it was tuned; empty for the others
};
Answer answer_for(const Scene& scene);

struct Explanation {
  DeviceInfo gpu;
  Problem problem;
  std::vector<CandidateRow> candidates;
  std::string match, candidate, reason;  // as in Answer
  std::optional<Winner> winner;
  std::vector<std::string> misses;  // near winners that do not answer exactly
  std::string tune_command;         // gets an exact winner
};

Explanation explain(const Scene& scene);
std::string explain_text(const Explanation& explanation);
Json explain_json(const Explanation& explanation);

}  // namespace attune
