#include "cli/bench_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "jit/host/host_target.h"

namespace attune {
namespace {

std::string points_text(const BenchRow& row, const Ceilings& ceilings) {
  Table table({{"kv_len"},
               {"time_us"},
               {"+/-"},
               {"GB/s"},
               {"TFLOP/s"},
               {"floor_us"},
               {"% of floor"},
               {"default_us"},
               {"+/-"},
               {"over default"}});
  for (const BenchPoint& point : row.points) {
    const double us = point.served.median_us;
    const double floor = floor_us(row.problem, point.kv_lens, ceilings);
    const double gigabytes_per_s = problem_bytes(row.problem, point.kv_lens) / us * 1e-3;
    const double tflops = problem_flops(row.problem, point.kv_lens) / us * 1e-6;
    table.add_row({lengths_text(point.kv_lens), time_text(us), time_text(point.served.spread_us),
                   fmt::format("{:.0f}", gigabytes_per_s), fmt::format("{:.1f}", tflops),
                   time_text(floor), fmt::format("{:.0f}", floor / us * 100),
                   time_text(point.fallback.median_us), time_text(point.fallback.spread_us),
                   fmt::format("{:.2f}x", point.fallback.median_us / us)});
  }
  return table.text();
}

std::string header_text(const BenchOutcome& outcome) {
  const DeviceInfo& device = outcome.gpu;
  const Ceilings& ceilings = outcome.ceilings;
  if (is_host_arch(device.arch)) {
    return fmt::format(
        "{} ({}), {} cores: reads {:.2f} GB/s, emulated tensor cores {:.2f} GFLOP/s bf16; times of "
        "single launches of the host device, combine included: they say nothing about a GPU\n",
        device.name, device.arch, device.num_sms, ceilings.read_bytes_per_s * 1e-9,
        ceilings.tensor_flops_per_s * 1e-9);
  }
  return fmt::format(
      "{} ({}), driver {}: reads {:.2f} TB/s, tensor cores {:.0f} TFLOP/s bf16; times by graph "
      "replay with a cold L2, combine included (method {})\n",
      device.name, device.arch, device.driver_version, ceilings.read_bytes_per_s * 1e-12,
      ceilings.tensor_flops_per_s * 1e-12, kTimingMethod);
}

std::string audit_text(const BenchRow& row) {
  Table table({{"candidate", Align::kLeft},
               {"rule", Align::kLeft},
               {"time_us"},
               {"+/-"},
               {"regs"},
               {"spill_bytes"},
               {"failure", Align::kLeft}});
  for (const RuleAudit& one : row.audit) {
    const bool timed = one.failure.empty();
    const KernelResources& kernel = one.resources;
    table.add_row({one.candidate.text(), one.within_rule ? "kept" : "dropped",
                   timed ? time_text(one.measurement.median_us) : "-",
                   timed ? time_text(one.measurement.spread_us) : "-",
                   kernel.registers == 0 ? "-" : std::to_string(kernel.registers),
                   std::to_string(kernel.spill_store_bytes + kernel.spill_load_bytes),
                   one.failure.substr(0, one.failure.find('\n'))});
  }
  return fmt::format("register rule at kv {}: the served candidate and what the rule drops\n",
                     row.audit_kv_len) +
         table.text();
}

}  // namespace

double floor_us(const Problem& problem, std::span<const int> kv_lens, const Ceilings& ceilings) {
  return 1e6 * std::max(problem_bytes(problem, kv_lens) / ceilings.read_bytes_per_s,
                        problem_flops(problem, kv_lens) / ceilings.tensor_flops_per_s);
}

std::string lengths_text(std::span<const int> kv_lens) {
  const auto [shortest, longest] = std::minmax_element(kv_lens.begin(), kv_lens.end());
  if (*shortest == *longest) return std::to_string(*longest);
  return fmt::format("{}..{}", *shortest, *longest);
}

std::string_view name_of(Served served) {
  switch (served) {
    case Served::kExact:
      return "exact";
    case Served::kNearest:
      return "nearest";
    case Served::kDefault:
      break;
  }
  return "default";
}

std::string bench_text(const BenchOutcome& outcome) {
  std::string text = header_text(outcome);
  for (const BenchRow& row : outcome.rows) {
    text += fmt::format("\n{}\nserved {} ({}), default {}\n", row.problem.text(), row.candidate,
                        row.match, row.default_candidate);
    text += points_text(row, outcome.ceilings);
    if (!row.audit.empty()) text += audit_text(row);
  }
  return text;
}

}  // namespace attune
