// What the checks of the host device say about the candidates of a problem, as text and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cache/records.h"
#include "cli/report.h"

namespace attune {

struct CheckRow {
  Candidate candidate;
  bool early_copies = false;
  std::optional<Rejection> failure;
  Admission admission;  // where there is no failure
};

struct CheckOutcome {
  Problem problem;
  std::string target;  // "host+checks"
  std::vector<CheckRow> rows;
  std::size_t num_left = 0;  // not reached: interrupted
  double total_s = 0;

  std::size_t num_failed() const;
};

std::string check_text(const CheckOutcome& outcome);
Json check_json(const CheckOutcome& outcome);

}  // namespace attune
