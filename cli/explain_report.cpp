#include "cli/explain_report.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/json_forms.h"
#include "common/error.h"
#include "runtime/dispatch.h"
#include "tuner/select.h"
#include "tuner/space.h"

namespace attune {
namespace {

constexpr std::size_t kMissReasons = 3;

std::string reason_for(const Scene& scene, const WinnerHit& hit) {
  const Winner& winner = hit.winner;
  std::string reason = fmt::format("the winner of this problem, tuned {}", winner.created_at);
  if (hit.match != Match::kExact) {
    reason = fmt::format("the winner of the nearest tuned problem {} ({})", winner.problem.text(),
                         fmt::join(differing_fields(scene.problem, winner.problem), ", "));
  }
  if (hit.freshness == Freshness::kOtherGpu) {
    return reason + "; provisional: timed on the GPU that the alias names, tune it here";
  }
  for (const StaleReason& stale : stale_reasons(scene, winner)) reason += "; " + stale.text;
  return reason;
}

// The first, a middle and the last point: enough to see a trend, few enough for a line.
std::vector<int> shown_points(const KvRange& range) {
  const std::vector<int> all = kv_points(range);
  std::vector<int> shown;
  for (const int point : {all.front(), all[all.size() / 2], all.back()}) {
    if (shown.empty() || shown.back() != point) shown.push_back(point);
  }
  return shown;
}

std::string time_at(const CandidateRow& row, int kv_len) {
  for (const Measurement& point : row.points) {
    if (point.kv_len != kv_len) continue;
    return fmt::format("{:.2f} +/- {:.2f}", point.median_us, point.spread_us);
  }
  return "-";
}

std::string fate_of(const CandidateRow& row) {
  if (row.rejected) {
    const Rejection& why = row.rejected->rejection;
    const bool is_pruned = row.rejected->stage == Stage::kPrune;
    return fmt::format("{}: {}: {}", is_pruned ? "pruned" : "rejected", name_of(why.reason),
                       why.detail);
  }
  if (row.points.empty()) return fmt::format("not timed, rank {} by the cost model", row.rank);
  return row.worst_regret ? "timed" : "timed at some points, then dropped as slow";
}

std::string clocks_text(int sm_mhz, int memory_mhz) {
  if (sm_mhz == 0) return "clocks not known";
  return fmt::format("clocks {} MHz, memory {} MHz at the lowest", sm_mhz, memory_mhz);
}

// Why the winner is believed to be one.
std::string evidence_text(const Winner& winner) {
  std::string text;
  if (winner.candidate.text() != winner.default_candidate && !winner.default_candidate.empty()) {
    text += fmt::format("over the default {}: {}, at least {} with 99.9% confidence\n",
                        winner.default_candidate, percent_text(winner.margin_default),
                        percent_text(winner.margin_default_low));
  }
  if (!winner.runner_up.empty() && winner.margin_runner_up >= 0) {
    text += fmt::format("over the runner-up {}: {} of worst regret\n", winner.runner_up,
                        percent_text(winner.margin_runner_up));
  } else if (!winner.runner_up.empty()) {
    text += fmt::format("{} has {} less of worst regret, but is not surely faster\n",
                        winner.runner_up, percent_text(-winner.margin_runner_up));
  }
  int samples = 0, dropped = 0, sm_mhz = 0, memory_mhz = 0;
  std::set<std::string> throttles;
  for (const Measurement& point : winner.measurements) {
    samples += point.num_samples;
    dropped += point.num_dropped;
    if (sm_mhz == 0 || (point.sm_clock_mhz > 0 && point.sm_clock_mhz < sm_mhz)) {
      sm_mhz = point.sm_clock_mhz;
      memory_mhz = point.memory_clock_mhz;
    }
    if (!point.throttle.empty()) throttles.insert(point.throttle);
  }
  text += fmt::format(
      "timed by graph replay with a cold L2 (method {}{}): {} at {}, {} dropped; {}{}\n",
      winner.method, winner.effort.empty() ? "" : ", effort " + winner.effort,
      count_text(static_cast<std::size_t>(samples), "sample"),
      count_text(winner.measurements.size(), "length"), dropped, clocks_text(sm_mhz, memory_mhz),
      throttles.empty() ? "" : fmt::format(", held back by {}", fmt::join(throttles, ", ")));
  if (winner.provisional()) {
    text +=
        "provisional: other processes ran on the device, or its clocks never settled; tune "
        "with --refresh when it is idle\n";
  }
  return text;
}

std::string candidates_text(const Explanation& explanation) {
  const std::vector<int> points = shown_points(explanation.problem.kv);
  std::vector<Table::Column> columns = {
      {"candidate", Align::kLeft}, {"regs", Align::kRight}, {"smem_KiB", Align::kRight}};
  for (const int point : points) columns.push_back({fmt::format("us at kv {}", point)});
  columns.push_back({"regret"});
  columns.push_back({"fate", Align::kLeft});
  Table table(std::move(columns));
  for (const CandidateRow& row : explanation.candidates) {
    std::vector<std::string> cells = {
        row.candidate.text(), row.registers == 0 ? "-" : std::to_string(row.registers),
        row.smem_bytes == 0 ? "-" : fmt::format("{:.0f}", row.smem_bytes / 1024.0)};
    for (const int point : points) cells.push_back(time_at(row, point));
    cells.push_back(row.worst_regret ? percent_text(*row.worst_regret) : "-");
    cells.push_back(fate_of(row));
    table.add_row(std::move(cells));
  }
  return table.text();
}

}  // namespace

std::vector<RejectionCause> causes_of(const std::vector<CandidateRow>& rows) {
  std::vector<RejectionCause> causes;
  for (const CandidateRow& row : rows) {
    if (!row.rejected) continue;
    const std::string cause = fmt::format("{}: {}", name_of(row.rejected->stage),
                                          name_of(row.rejected->rejection.reason));
    auto known = std::find_if(causes.begin(), causes.end(),
                              [&](const auto& one) { return one.cause == cause; });
    if (known == causes.end()) {
      known = causes.insert(
          causes.end(),
          {cause, 0, fmt::format("{}: {}", row.candidate.text(), row.rejected->rejection.detail)});
    }
    ++known->count;
  }
  std::stable_sort(causes.begin(), causes.end(),
                   [](const auto& a, const auto& b) { return a.count > b.count; });
  return causes;
}

Answer answer_for(const Scene& scene) {
  auto hit = find_served(scene);
  std::optional<std::string> refused;
  if (hit) refused = why_not_servable(scene.problem, hit->winner.candidate, scene.gpu);
  if (hit && !refused) {
    const std::string reason = reason_for(scene, *hit);
    return {hit->is_exact() ? "exact" : "nearest", hit->winner.candidate.text(), reason,
            std::move(hit)};
  }
  try {
    return {"default", default_candidate(scene.problem, scene.gpu).text(),
            refused ? fmt::format("the stored winner {} cannot run: {}",
                                  hit->winner.candidate.text(), *refused)
                    : "no winner answers for this problem; a pure rule picks the default",
            std::nullopt};
  } catch (const InvalidArgument& error) {
    return {"none", "", error.what(), std::nullopt};
  }
}

Explanation explain(const Scene& scene) {
  Explanation explanation;
  explanation.gpu = scene.gpu;
  explanation.problem = scene.problem;
  explanation.candidates = candidate_rows(scene);
  explanation.tune_command = tune_command(scene.problem, scene.gpu);
  Answer answer = answer_for(scene);
  explanation.match = std::move(answer.match);
  explanation.candidate = std::move(answer.candidate);
  explanation.reason = std::move(answer.reason);
  if (answer.hit) explanation.winner = std::move(answer.hit->winner);
  if (explanation.match != "exact") explanation.misses = miss_reasons(scene, kMissReasons);
  return explanation;
}

std::string explain_text(const Explanation& explanation) {
  std::string text = fmt::format("{} on {} ({})\n", explanation.problem.text(),
                                 explanation.gpu.name, explanation.gpu.arch);
  text += candidates_text(explanation);
  Table causes({{"dropped at", Align::kLeft}, {"count"}, {"first example", Align::kLeft}});
  for (const RejectionCause& one : causes_of(explanation.candidates)) {
    causes.add_row({one.cause, std::to_string(one.count), one.example});
  }
  if (!causes.empty()) text += causes.text();
  for (const std::string& miss : explanation.misses) text += "no exact match: " + miss + "\n";
  if (explanation.match != "exact") text += "tune it: " + explanation.tune_command + "\n";
  if (explanation.match == "none") return text + "cannot be served: " + explanation.reason + "\n";
  text += fmt::format("would serve {} ({}): {}\n", explanation.candidate, explanation.match,
                      explanation.reason);
  return explanation.winner ? text + evidence_text(*explanation.winner) : text;
}

Json explain_json(const Explanation& explanation) {
  Json causes = Json::array();
  for (const RejectionCause& one : causes_of(explanation.candidates)) {
    causes.push_back({{"cause", one.cause}, {"count", one.count}, {"example", one.example}});
  }
  Json candidates = Json::array();
  for (const CandidateRow& row : explanation.candidates) {
    candidates.push_back(to_json(row));
    candidates.back()["fate"] = fate_of(row);
  }
  return {{"problem", explanation.problem.text()},
          {"gpu", to_json(explanation.gpu)},
          {"match", explanation.match},
          {"candidate", explanation.candidate},
          {"reason", explanation.reason},
          {"winner", explanation.winner ? to_json(*explanation.winner) : Json()},
          {"misses", explanation.misses},
          {"tune_command", explanation.tune_command},
          {"causes", causes},
          {"candidates", candidates}};
}

}  // namespace attune
