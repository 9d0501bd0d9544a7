#include "tuner/shard.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "common/text.h"
#include "jit/device_info.h"
#include "tuner/select.h"
#include "tuner/space.h"
#include "tuner/tuner.h"

namespace attune {
namespace {

constexpr const char* kArch = "sm_90a";  // whatever the machine: shares must not differ
// Lengths that take as long to time as a candidate takes to be compiled and verified.
constexpr double kPointsPerCandidate = 8;

// In candidates, up to a factor.
double expected_cost(const TuneUnit& unit) {
  std::size_t num_candidates = 0, num_points = 0;
  for (const KvRange& range : unit.ranges) {
    Problem problem = unit.problem;
    problem.kv = range;
    num_candidates =
        std::max(num_candidates, candidate_space(problem, architecture_limits(kArch)).kept.size());
    num_points += kv_points(range).size();
  }
  return static_cast<double>(num_candidates) *
         (1 + static_cast<double>(num_points) / kPointsPerCandidate);
}

}  // namespace

Shard Shard::parse(std::string_view text) {
  const auto parts = split(text, '/');
  const auto idx = parse_int(parts.front()).value_or(-1);
  const auto count = parse_int(parts.back()).value_or(0);
  if (parts.size() != 2 || idx < 0 || idx >= count) {
    throw InvalidArgument("cannot read the shard", fmt::format("'{}'", text),
                          "write it as i/n with i from 0 to n-1, as in 0/4");
  }
  return {static_cast<std::size_t>(idx), static_cast<std::size_t>(count)};
}

std::vector<Problem> problems_of_shard(const std::vector<Problem>& problems, const Shard& shard) {
  std::vector<std::pair<double, TuneUnit>> units;
  for (TuneUnit& unit : group_problems(problems)) {
    const double cost = expected_cost(unit);
    units.emplace_back(cost, std::move(unit));
  }
  // The dearest first, each to the share that has the least so far.
  std::sort(units.begin(), units.end(), [](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first > b.first;
    return a.second.problem.text() < b.second.problem.text();
  });
  std::vector<double> loads(shard.count, 0.0);
  std::vector<Problem> mine;
  for (const auto& [cost, unit] : units) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += cost;
    if (static_cast<std::size_t>(least - loads.begin()) != shard.idx) continue;
    for (const KvRange& range : unit.ranges) {
      mine.push_back(unit.problem);
      mine.back().kv = range;
    }
  }
  return mine;
}

}  // namespace attune
