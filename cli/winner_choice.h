// Which winners attune cache list shows, and in which order.
#pragma once

#include <string>
#include <vector>

#include "cli/cache_report.h"

namespace attune {

struct WinnerChoice {
  std::string gpu;                // part of a name; empty: all
  std::vector<Problem> problems;  // empty: all
  std::string state;              // of winner_states(); empty: all
  std::string order = "gpu";      // of winner_orders()
  bool reverse = false;
};

// "current", ..., and "provisional", which goes with any of the others.
std::vector<std::string> winner_states();
// "gpu" and by problem within it, as stored; "problem"; "time" shortest, "gain" largest and "age"
// youngest first; "state".
std::vector<std::string> winner_orders();

// Winners without a time come last by time.
WinnersByGpu choose_winners(WinnersByGpu winners, const WinnerChoice& choice);

}  // namespace attune
