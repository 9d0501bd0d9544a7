#include "cli/json_forms.h"
#include "cli/tune_report.h"

namespace attune {
namespace {

Json reasons_json(std::size_t total, const ReasonCounts& reasons) {
  Json by_reason = Json::object();
  for (const auto& [reason, count] : reasons) by_reason[reason] = count;
  return {{"total", total}, {"by_reason", by_reason}};
}

}  // namespace

Json tune_json(const TuneOutcome& outcome) {
  const TuneReport& report = outcome.report;
  Json winners = Json::array();
  for (const Winner& winner : report.winners) winners.push_back(to_json(winner));
  Json candidates = Json::array();
  for (const CandidateRow& row : outcome.candidates) candidates.push_back(to_json(row));
  return {{"state", outcome.compiled_only ? "compiled" : "tuned"},
          {"gpu", outcome.compiled_only ? Json() : to_json(outcome.device)},
          {"arch", outcome.device.arch},
          {"cache", outcome.cache_path},
          {"problems", report.num_problems},
          {"already_tuned", report.num_cached},
          {"tuned", report.num_tuned},
          {"candidates", report.num_candidates},
          {"pruned", reasons_json(report.num_pruned, report.pruned_by_reason)},
          {"compiled", report.num_compiled},
          {"binaries", outcome.num_binaries},
          {"missing", outcome.missing},
          {"rejected", reasons_json(report.num_rejected, report.rejected_by_reason)},
          {"timed", report.num_timed},
          {"seconds",
           {{"compile", report.compile_s},
            {"verify", report.verify_s},
            {"time", report.time_s},
            {"total", report.total_s}}},
          {"complete", report.complete},
          {"interrupted", report.interrupted},
          {"winners", winners},
          {"failures", report.failures},
          {"ranking", candidates}};
}

}  // namespace attune
