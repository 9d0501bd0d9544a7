// The machine-readable forms of a bench.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/bench_report.h"
#include "cli/json_forms.h"

namespace attune {
namespace {

Json timing_json(const Timing& timing) {
  return {{"time_us", timing.median_us},
          {"spread_us", timing.spread_us},
          {"samples", timing.num_samples}};
}

bool is_mixed(std::span<const int> kv_lens) {
  return std::count(kv_lens.begin(), kv_lens.end(), kv_lens.front()) !=
         static_cast<std::ptrdiff_t>(kv_lens.size());
}

Json point_json(const BenchRow& row, const BenchPoint& point, const Ceilings& ceilings) {
  const double us = point.served.median_us;
  const double bytes = problem_bytes(row.problem, point.kv_lens);
  const double flops = problem_flops(row.problem, point.kv_lens);
  const double floor = floor_us(row.problem, point.kv_lens, ceilings);
  Json json;
  if (is_mixed(point.kv_lens)) {
    json["kv_len"] = lengths_text(point.kv_lens);
    json["lengths"] = point.kv_lens;
  } else {
    json["kv_len"] = point.kv_lens.front();
  }
  json.update({{"served", timing_json(point.served)},
               {"default", timing_json(point.fallback)},
               {"bytes", bytes},
               {"flops", flops},
               {"gigabytes_per_s", bytes / us * 1e-3},
               {"tflops", flops / us * 1e-6},
               {"floor_us", floor},
               {"percent_of_floor", floor / us * 100}});
  return json;
}

Json audit_json(const RuleAudit& one) {
  const KernelResources& kernel = one.resources;
  return {{"candidate", one.candidate.text()},
          {"within_rule", one.within_rule},
          {"time_us", one.failure.empty() ? Json(one.measurement.median_us) : Json()},
          {"spread_us", one.failure.empty() ? Json(one.measurement.spread_us) : Json()},
          {"registers", kernel.registers},
          {"spill_bytes", kernel.spill_store_bytes + kernel.spill_load_bytes},
          {"failure", one.failure}};
}

// A field of CSV; quoted where it has to be.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? "\"\"" : std::string(1, letter);
  return quoted + "\"";
}

}  // namespace

Json bench_json(const BenchOutcome& outcome) {
  Json rows = Json::array();
  for (const BenchRow& row : outcome.rows) {
    Json points = Json::array();
    for (const BenchPoint& point : row.points) {
      points.push_back(point_json(row, point, outcome.ceilings));
    }
    Json json = {{"problem", row.problem.text()},
                 {"served", row.candidate},
                 {"match", row.match},
                 {"default", row.default_candidate},
                 {"points", points}};
    if (!row.audit.empty()) {
      json["register_rule"] = {{"kv_len", row.audit_kv_len}, {"candidates", Json::array()}};
      for (const RuleAudit& one : row.audit) {
        json["register_rule"]["candidates"].push_back(audit_json(one));
      }
    }
    rows.push_back(std::move(json));
  }
  return {{"gpu", to_json(outcome.gpu)},
          {"read_bytes_per_s", outcome.ceilings.read_bytes_per_s},
          {"tensor_flops_per_s", outcome.ceilings.tensor_flops_per_s},
          {"method", kTimingMethod},
          {"problems", rows}};
}

std::string bench_csv(const BenchOutcome& outcome, const std::string& taken) {
  std::string text =
      "taken,gpu,driver,read_tb_s,tensor_tflops,method,problem,kv_len,candidate,match,time_us,"
      "spread_us,samples,floor_us,default_candidate,default_us,default_spread_us,lengths\n";
  for (const BenchRow& row : outcome.rows) {
    for (const BenchPoint& point : row.points) {
      text += fmt::format(
          "{},{},{},{:.3f},{:.1f},{},{},{},{},{},{:.3f},{:.3f},{},{:.3f},{},{:.3f},{:.3f},{}\n",
          taken, field(outcome.gpu.name), outcome.gpu.driver_version,
          outcome.ceilings.read_bytes_per_s * 1e-12, outcome.ceilings.tensor_flops_per_s * 1e-12,
          kTimingMethod, row.problem.text(), lengths_text(point.kv_lens), row.candidate, row.match,
          point.served.median_us, point.served.spread_us, point.served.num_samples,
          floor_us(row.problem, point.kv_lens, outcome.ceilings), row.default_candidate,
          point.fallback.median_us, point.fallback.spread_us,
          is_mixed(point.kv_lens) ? fmt::format("{}", fmt::join(point.kv_lens, " ")) : "");
    }
  }
  return text;
}

std::string audit_csv(const BenchOutcome& outcome, const std::string& taken) {
  std::string text =
      "taken,gpu,driver,problem,kv_len,candidate,rule,time_us,spread_us,registers,spill_bytes,"
      "failure\n";
  for (const BenchRow& row : outcome.rows) {
    for (const RuleAudit& one : row.audit) {
      const bool timed = one.failure.empty();
      const KernelResources& kernel = one.resources;
      text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", taken, field(outcome.gpu.name),
                          outcome.gpu.driver_version, row.problem.text(), row.audit_kv_len,
                          one.candidate.text(), one.within_rule ? "kept" : "dropped",
                          timed ? fmt::format("{:.3f}", one.measurement.median_us) : "",
                          timed ? fmt::format("{:.3f}", one.measurement.spread_us) : "",
                          kernel.registers, kernel.spill_store_bytes + kernel.spill_load_bytes,
                          field(one.failure.substr(0, one.failure.find('\n'))));
    }
  }
  return text;
}

}  // namespace attune
