// The machine-readable form of attune report.
#include "cli/json_forms.h"
#include "cli/tuning_report.h"

namespace attune {
namespace {

Json winner_json(const ReportWinner& one) {
  Json json = to_json(one.winner);
  json["served"] = one.is_served;
  json["stale"] = Json::array();
  for (const StaleReason& reason : one.stale) {
    json["stale"].push_back(
        {{"label", reason.label}, {"text", reason.text}, {"served", reason.is_served}});
  }
  for (std::size_t i = 0; i < one.points.size(); ++i) {
    const ReportPoint& point = one.points[i];
    Json& measured = json["measurements"][i];
    measured["default_us"] = point.fallback ? Json(point.fallback->median_us) : Json();
    measured["default_spread_us"] = point.fallback ? Json(point.fallback->spread_us) : Json();
    measured["floor_us"] = point.floor_us ? Json(*point.floor_us) : Json();
  }
  return json;
}

Json rejections_json(const std::vector<StoredRejection>& rejections) {
  Json array = Json::array();
  for (const RejectionGroup& group : group_rejections(rejections)) {
    Json candidates = Json::array();
    for (const std::size_t row : group.rows) {
      const StoredRejection& one = rejections[row];
      candidates.push_back({{"problem", one.problem.text()},
                            {"candidate", one.record.candidate.text()},
                            {"detail", one.record.rejection.detail}});
    }
    array.push_back({{"stage", name_of(group.stage)},
                     {"reason", name_of(group.reason)},
                     {"count", group.rows.size()},
                     {"candidates", candidates}});
  }
  return array;
}

Json gpu_json(const ReportGpu& gpu) {
  Json winners = Json::array(), gaps = Json::array();
  for (const ReportWinner& one : gpu.winners) winners.push_back(winner_json(one));
  for (const ReportGap& gap : gpu.gaps) {
    gaps.push_back({{"problem", gap.problem.text()},
                    {"match", gap.match},
                    {"served", gap.candidate.empty() ? Json() : Json(gap.candidate)},
                    {"reason", gap.reason},
                    {"tune_command", gap.tune_command}});
  }
  Json json = {{"gpu", gpu.identity},
               {"driver", gpu.today.driver_version},
               {"compiler", gpu.today.compiler_version},
               {"here", gpu.today.is_here}};
  json["ceilings"] = Json();
  if (gpu.ceilings) {
    json["ceilings"] = {{"read_bytes_per_s", gpu.ceilings->read_bytes_per_s},
                        {"tensor_flops_per_s", gpu.ceilings->tensor_flops_per_s},
                        {"measured", gpu.are_ceilings_measured}};
  }
  json["winners"] = winners;
  json["missing"] = gaps;
  json["rejections"] = rejections_json(gpu.rejections);
  return json;
}

}  // namespace

Json tuning_report_json(const TuningReport& report) {
  Json gpus = Json::array();
  for (const ReportGpu& gpu : report.gpus) gpus.push_back(gpu_json(gpu));
  return {{"cache", report.cache_path},
          {"bases", report.base_paths},
          {"created", report.created_at},
          {"gpus", gpus}};
}

}  // namespace attune
