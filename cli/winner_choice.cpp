#include "cli/winner_choice.h"

#include <algorithm>
#include <limits>

#include "cli/tune_report.h"
#include "cli/workplace.h"

namespace attune {
namespace {

bool is_chosen(const std::string& identity, const Winner& winner, const WinnerChoice& choice) {
  const auto& problems = choice.problems;
  if (!is_gpu_named(identity, choice.gpu)) return false;
  if (!problems.empty() &&
      std::find(problems.begin(), problems.end(), winner.problem) == problems.end()) {
    return false;
  }
  if (choice.state.empty()) return true;
  return choice.state == "provisional" ? winner.provisional() : choice.state == state_of(winner);
}

double last_time(const Winner& winner) {
  const Measurement* point = last_point(winner.measurements);
  return point == nullptr ? std::numeric_limits<double>::infinity() : point->median_us;
}

bool comes_before(const Winner& a, const Winner& b, const std::string& order) {
  if (order == "problem") return a.problem < b.problem;
  if (order == "time") return last_time(a) < last_time(b);
  if (order == "gain") return a.margin_default > b.margin_default;
  if (order == "age") return a.created_at > b.created_at;
  if (order == "state") return state_of(a) < state_of(b);
  return false;  // "gpu": as they are
}

}  // namespace

std::vector<std::string> winner_states() {
  return {"current", "partial", "older method", "older template", "provisional"};
}

std::vector<std::string> winner_orders() {
  return {"gpu", "problem", "time", "gain", "age", "state"};
}

WinnersByGpu choose_winners(WinnersByGpu winners, const WinnerChoice& choice) {
  std::erase_if(winners,
                [&](const auto& one) { return !is_chosen(one.first, one.second, choice); });
  std::stable_sort(winners.begin(), winners.end(), [&](const auto& a, const auto& b) {
    return comes_before(a.second, b.second, choice.order);
  });
  if (choice.reverse) std::reverse(winners.begin(), winners.end());
  return winners;
}

}  // namespace attune
