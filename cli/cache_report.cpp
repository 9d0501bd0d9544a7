#include "cli/cache_report.h"

#include <cmath>
#include <map>

#include <fmt/format.h>

#include "cli/json_forms.h"
#include "cli/tune_report.h"
#include "common/text.h"
#include "jit/compiler.h"
#include "tuner/timer.h"

namespace attune {
namespace {

// "prune": {"smem": 29}, by stage and reason.
std::map<std::string, std::map<std::string, std::size_t>> count_rejections(
    const std::vector<RejectionRecord>& rejections) {
  std::map<std::string, std::map<std::string, std::size_t>> counts;
  for (const RejectionRecord& record : rejections) {
    ++counts[std::string(name_of(record.stage))][std::string(name_of(record.rejection.reason))];
  }
  return counts;
}

std::string rejection_lines(const StoredProblem& stored) {
  std::string lines;
  for (const auto& [stage, reasons] : count_rejections(stored.rejections)) {
    std::size_t total = 0;
    for (const auto& [reason, count] : reasons) total += count;
    const ReasonCounts counts(reasons.begin(), reasons.end());
    lines +=
        fmt::format("dropped    at {}: {}\n", stage, reasons_text(total, "candidates", counts));
  }
  return lines;
}

std::string points_text(const Winner& winner) {
  Table table({{"kv_len"}, {"time_us"}, {"+/-"}, {"GB/s"}, {"samples"}});
  for (const Measurement& point : winner.measurements) {
    const double bytes = problem_bytes(winner.problem, point.kv_len);
    table.add_row(
        {std::to_string(point.kv_len), time_text(point.median_us), time_text(point.spread_us),
         fmt::format("{:.0f}", bytes / point.median_us * 1e-3), std::to_string(point.num_samples)});
  }
  return table.text();
}

std::string one_text(const StoredProblem& stored, std::int64_t now) {
  const Winner& winner = stored.winner;
  const Admission& admission = winner.admission;
  std::string text =
      fmt::format("problem    {}\ngpu        {}\nwinner     {} ({}, {} ago)\n",
                  winner.problem.text(), gpu_text(stored.identity), winner.candidate.text(),
                  state_of(winner), age_text(winner.created_at, now));
  text +=
      fmt::format("regret     {} at its worst point, of {}\n", percent_text(winner.worst_regret),
                  count_text(stored.num_measured, "timed candidate"));
  if (!winner.runner_up.empty()) {
    const bool is_behind = winner.margin_runner_up >= 0;
    text += fmt::format("runner-up  {}, regret {} {}\n", winner.runner_up,
                        percent_text(std::abs(winner.margin_runner_up)),
                        is_behind ? "more" : "less, but not surely faster");
  }
  if (!winner.default_candidate.empty()) {
    text += fmt::format("default    {}, takes {} longer\n", winner.default_candidate,
                        percent_text(winner.margin_default));
  }
  text += fmt::format(
      "admission  relative L2 {:.2e}, worst edge case {:.2e}, largest error {:.2e}, {} against "
      "{}\n",
      admission.relative_l2, admission.worst_case_relative_l2, admission.max_abs_error,
      count_text(static_cast<std::size_t>(admission.num_cases), "case"), admission.reference);
  text += rejection_lines(stored);
  text += fmt::format("toolchain  {}, {}, template {}\n",
                      compiler_name(winner.binary.arch, winner.toolchain.compiler_version),
                      winner.toolchain.options, winner.toolchain.template_digest.text());
  text += fmt::format("measured   driver {}, method {}\n", winner.driver_version, winner.method);
  for (const KernelResources& kernel : winner.binary.kernels) {
    text += fmt::format("kernel     {}: {} registers, {} bytes of stack\n", kernel.symbol,
                        kernel.registers, kernel.stack_bytes);
  }
  return text + points_text(winner);
}

}  // namespace

std::string state_of(const Winner& winner) {
  const Family* family = find_family(winner.candidate.family);
  if (family == nullptr ||
      template_digest(*family, winner.binary.arch) != winner.toolchain.template_digest) {
    return "older template";
  }
  if (winner.method == kTimingMethod) return "current";
  return winner.method < 0 ? "partial" : "older method";
}

std::string gpu_text(const std::string& identity) {
  const auto parts = split(identity, '|');
  return parts.size() < 2 ? identity : fmt::format("{} ({})", parts[0], parts[1]);
}

std::string list_text(const WinnersByGpu& winners, std::int64_t now) {
  Table table({{"gpu", Align::kLeft},
               {"problem", Align::kLeft},
               {"candidate", Align::kLeft},
               {"kv_len"},
               {"time_us"},
               {"+/-"},
               {"over_default"},
               {"age"},
               {"state", Align::kLeft}});
  for (const auto& [identity, winner] : winners) {
    const Measurement* point = last_point(winner.measurements);
    table.add_row({gpu_text(identity), winner.problem.text(), winner.candidate.text(),
                   point == nullptr ? "-" : std::to_string(point->kv_len),
                   point == nullptr ? "-" : time_text(point->median_us),
                   point == nullptr ? "-" : time_text(point->spread_us),
                   percent_text(winner.margin_default), age_text(winner.created_at, now),
                   state_of(winner)});
  }
  return (table.empty() ? "" : table.text()) + count_text(winners.size(), "winner") + "\n";
}

Json list_json(const WinnersByGpu& winners) {
  Json array = Json::array();
  for (const auto& [identity, winner] : winners) {
    Json one = to_json(winner);
    one["gpu"] = identity;
    one["state"] = state_of(winner);
    array.push_back(std::move(one));
  }
  return {{"winners", array}};
}

std::string show_text(const std::vector<StoredProblem>& stored, std::int64_t now) {
  std::string text;
  for (const StoredProblem& one : stored) {
    text += (text.empty() ? "" : "\n") + one_text(one, now);
  }
  return text;
}

Json show_json(const std::vector<StoredProblem>& stored) {
  Json array = Json::array();
  for (const StoredProblem& one : stored) {
    Json json = to_json(one.winner);
    json["gpu"] = one.identity;
    json["state"] = state_of(one.winner);
    json["timed_candidates"] = one.num_measured;
    json["rejections"] = count_rejections(one.rejections);
    array.push_back(std::move(json));
  }
  return {{"winners", array}};
}

std::string stats_text(const CacheStats& stats) {
  return fmt::format(
      "path          {}\nschema        {}\nsize          {}\ngpus          {}\n"
      "problems      {}\ncandidates    {}\nbinaries      {}\nadmissions    {}\n"
      "measurements  {}\nwinners       {}\nrejections    {}\n",
      stats.path, stats.schema_version, bytes_text(stats.file_bytes), stats.num_gpus,
      stats.num_problems, stats.num_candidates, stats.num_binaries, stats.num_admissions,
      stats.num_measurements, stats.num_winners, stats.num_rejections);
}

Json stats_json(const CacheStats& stats) {
  return {{"path", stats.path},
          {"schema", stats.schema_version},
          {"file_bytes", stats.file_bytes},
          {"gpus", stats.num_gpus},
          {"problems", stats.num_problems},
          {"candidates", stats.num_candidates},
          {"binaries", stats.num_binaries},
          {"admissions", stats.num_admissions},
          {"measurements", stats.num_measurements},
          {"winners", stats.num_winners},
          {"rejections", stats.num_rejections}};
}

}  // namespace attune
