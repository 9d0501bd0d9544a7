#include "cli/readiness.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/json_forms.h"

namespace attune {
namespace {

std::string state_of_hit(const std::optional<WinnerHit>& hit) {
  if (!hit || hit->match != Match::kExact) return "missing";
  switch (hit->freshness) {
    case Freshness::kFresh:
      return "current";
    case Freshness::kStaleDriver:
      return "other driver";
    case Freshness::kOtherGpu:
      return "other gpu";
    case Freshness::kOlderMethod:
      break;
  }
  return hit->winner.method < 0 ? "partial" : "older method";
}

std::string places_text(const Readiness& outcome) {
  const std::string bases = fmt::format("{}", fmt::join(outcome.base_paths, ", "));
  if (!outcome.cache_path.empty()) {
    return outcome.cache_path + (bases.empty() ? "" : fmt::format(" and its bases {}", bases));
  }
  return bases.empty() ? "no cache: there is none yet"
                       : fmt::format("the bases {} alone: there is no cache yet", bases);
}

}  // namespace

std::size_t Readiness::count(const std::string& state) const {
  return static_cast<std::size_t>(std::count_if(
      problems.begin(), problems.end(), [&](const auto& one) { return one.state == state; }));
}

Readiness readiness_of(const TuneStore& store, const DeviceInfo& device,
                       const std::vector<Problem>& problems, const std::string& compiler_version) {
  const auto start = std::chrono::steady_clock::now();
  Readiness outcome;
  outcome.device = device;
  if (!store.is_in_memory()) outcome.cache_path = store.path();
  outcome.base_paths = store.base_paths();
  for (const Problem& problem : problems) {
    const auto hit = find_served(Scene::of(store, device, problem, compiler_version));
    const std::string state = state_of_hit(hit);
    outcome.problems.push_back(
        {problem, state, state == "missing" ? "" : hit->winner.candidate.text()});
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

std::string readiness_text(const Readiness& outcome) {
  Table table({{"problem", Align::kLeft}, {"state", Align::kLeft}, {"served", Align::kLeft}});
  for (const ReadyProblem& one : outcome.problems) {
    if (one.state == "current") continue;
    table.add_row(
        {one.problem.text(), one.state, one.candidate.empty() ? "the default" : one.candidate});
  }
  const std::size_t num_current = outcome.count("current"), num_missing = outcome.count("missing");
  return (table.empty() ? "" : table.text()) +
         fmt::format("{} of {} current, {} to be timed again, {} missing for {} ({}) in {}\n",
                     num_current, count_text(outcome.problems.size(), "problem"),
                     outcome.problems.size() - num_current - num_missing, num_missing,
                     outcome.device.name, outcome.device.arch, places_text(outcome));
}

Json readiness_json(const Readiness& outcome) {
  Json problems = Json::array();
  for (const ReadyProblem& one : outcome.problems) {
    problems.push_back({{"problem", one.problem.text()},
                        {"state", one.state},
                        {"served", one.candidate.empty() ? Json() : Json(one.candidate)}});
  }
  const Json cache = outcome.cache_path.empty() ? Json() : Json(outcome.cache_path);
  return {{"gpu", to_json(outcome.device)},      {"cache", cache},
          {"bases", outcome.base_paths},         {"complete", outcome.is_complete()},
          {"current", outcome.count("current")}, {"missing", outcome.count("missing")},
          {"seconds", outcome.seconds},          {"problems", problems}};
}

int readiness_exit_code(const Readiness& outcome) {
  if (outcome.is_complete()) return kExitDone;
  return outcome.count("missing") == 0 ? kExitPartial : kExitFailed;
}

}  // namespace attune
