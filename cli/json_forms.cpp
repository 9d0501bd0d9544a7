#include "cli/json_forms.h"

namespace attune {
namespace {

Json to_json(const std::vector<Measurement>& points) {
  Json array = Json::array();
  for (const Measurement& point : points) array.push_back(attune::to_json(point));
  return array;
}

}  // namespace

Json to_json(const Measurement& point) {
  return {{"kv_len", point.kv_len},
          {"time_us", point.median_us},
          {"spread_us", point.spread_us},
          {"low_us", point.low_us},
          {"high_us", point.high_us},
          {"samples", point.num_samples},
          {"dropped_samples", point.num_dropped},
          {"sm_clock_mhz", point.sm_clock_mhz},
          {"memory_clock_mhz", point.memory_clock_mhz},
          {"throttle", point.throttle},
          {"provisional", point.provisional},
          {"method", point.method},
          {"driver", point.driver_version},
          {"measured", point.created_at}};
}

Json to_json(const Winner& winner) {
  return {{"problem", winner.problem.text()},
          {"candidate", winner.candidate.text()},
          {"worst_regret", winner.worst_regret},
          {"runner_up", winner.runner_up},
          {"margin_runner_up", winner.margin_runner_up},
          {"default", winner.default_candidate},
          {"margin_default", winner.margin_default},
          {"margin_default_low", winner.margin_default_low},
          {"measurements", to_json(winner.measurements)},
          {"admission",
           {{"reference", winner.admission.reference},
            {"cases", winner.admission.num_cases},
            {"relative_l2", winner.admission.relative_l2},
            {"worst_case_relative_l2", winner.admission.worst_case_relative_l2},
            {"max_abs_error", winner.admission.max_abs_error}}},
          {"toolchain",
           {{"template_digest", winner.toolchain.template_digest.text()},
            {"nvrtc", winner.toolchain.compiler_version},
            {"options", winner.toolchain.options}}},
          {"method", winner.method},
          {"effort", winner.effort},
          {"provisional", winner.provisional()},
          {"driver", winner.driver_version},
          {"tuned", winner.created_at}};
}

Json to_json(const DeviceInfo& device) {
  return {{"name", device.name},
          {"arch", device.arch},
          {"sms", device.num_sms},
          {"memory_bytes", device.memory_bytes},
          {"mig", device.mig},
          {"uuid", device.uuid},
          {"driver", device.driver_version}};
}

Json to_json(const CandidateRow& row) {
  Json json = {{"candidate", row.candidate.text()},
               {"rank", row.rank},
               {"registers", row.registers},
               {"smem_bytes", row.smem_bytes},
               {"measurements", to_json(row.points)}};
  json["worst_regret"] = row.worst_regret ? Json(*row.worst_regret) : Json();
  json["rejected"] = Json();
  if (row.rejected) {
    json["rejected"] = {{"stage", name_of(row.rejected->stage)},
                        {"reason", name_of(row.rejected->rejection.reason)},
                        {"detail", row.rejected->rejection.detail}};
  }
  return json;
}

}  // namespace attune
