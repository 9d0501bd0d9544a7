#include "cli/tune_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/progress.h"
#include "tuner/timer.h"

namespace attune {
namespace {

constexpr std::size_t kRankingRows = 8;

std::string winners_text(const std::vector<Winner>& winners) {
  Table table({{"problem", Align::kLeft},
               {"candidate", Align::kLeft},
               {"kv_len"},
               {"time_us"},
               {"+/-"},
               {"over_default"},
               {"regret"}});
  for (const Winner& winner : winners) {
    const Measurement* point = last_point(winner.measurements);
    table.add_row({winner.problem.text(), winner.candidate.text(),
                   point == nullptr ? "-" : std::to_string(point->kv_len),
                   point == nullptr ? "-" : time_text(point->median_us),
                   point == nullptr ? "-" : time_text(point->spread_us),
                   percent_text(winner.margin_default), percent_text(winner.worst_regret)});
  }
  return table.empty() ? "" : table.text();
}

std::string phases_text(const TuneReport& report) {
  const double named_s = report.compile_s + report.verify_s + report.time_s;
  return fmt::format(
      "compile {}, verify {}, time {}, other {}, total {}\n", elapsed_text(report.compile_s),
      elapsed_text(report.verify_s), elapsed_text(report.time_s),
      elapsed_text(std::max(0.0, report.total_s - named_s)), elapsed_text(report.total_s));
}

std::string failures_text(const TuneReport& report) {
  std::string text;
  for (const std::string& failure : report.failures) text += "no winner: " + failure + "\n";
  if (report.interrupted) text += "interrupted: the same command goes on from here\n";
  if (!report.complete && !report.interrupted) {
    text += "the budget ended first: the same command goes on from here\n";
  }
  return text;
}

std::string provisional_text(const TuneReport& report) {
  const auto count = std::count_if(report.winners.begin(), report.winners.end(),
                                   [](const Winner& winner) { return winner.provisional(); });
  if (count == 0) return "";
  return fmt::format(
      "{} provisional: other processes ran on the device, or its clocks never "
      "settled; tune with --refresh when it is idle\n",
      count_text(static_cast<std::size_t>(count), "winner"));
}

std::string counts_text(const TuneReport& report) {
  return fmt::format("{}: {}, {}", count_text(report.num_candidates, "candidate"),
                     reasons_text(report.num_pruned, "pruned", report.pruned_by_reason),
                     reasons_text(report.num_rejected, "rejected", report.rejected_by_reason));
}

std::string compiled_text(const TuneOutcome& outcome) {
  const TuneReport& report = outcome.report;
  const bool had_all = report.num_compiled == 0 && report.complete && report.failures.empty();
  return fmt::format("compiled for {} only, nothing is verified or timed: {}\n",
                     outcome.device.arch, count_text(report.num_problems, "problem")) +
         counts_text(report) + "\n" + phases_text(report) + failures_text(report) +
         fmt::format("{}; {} for {} stored as 'compiled' in {}\n",
                     had_all ? "nothing was left to compile"
                             : "compiled " + count_text(report.num_compiled, "binary"),
                     count_text(outcome.num_binaries, "binary"), outcome.device.arch,
                     outcome.cache_path);
}

std::string missing_text(const TuneOutcome& outcome) {
  if (outcome.missing.empty()) return {};
  return fmt::format(
      "{} not stored and not measured, such as {}; compile them with attune tune --compile-only "
      "--arch {}\n",
      count_text(outcome.missing.size(), "binary"), outcome.missing.front(), outcome.device.arch);
}

}  // namespace

const Measurement* last_point(const std::vector<Measurement>& points) {
  return points.empty() ? nullptr : &points.back();
}

std::string ranking_text(const Problem& problem, const std::vector<CandidateRow>& rows,
                         std::size_t limit) {
  Table table({{"rank"},
               {"family", Align::kLeft},
               {"config", Align::kLeft},
               {"splits"},
               {"kv_len"},
               {"time_us"},
               {"+/-"},
               {"GB/s"},
               {"regret"},
               {"regs"},
               {"smem_KiB"}});
  std::size_t rank = 0;
  for (const CandidateRow& row : rows) {
    const Measurement* point = last_point(row.points);
    if (point == nullptr || !row.worst_regret || rank == limit) continue;
    const double bytes = problem_bytes(problem, point->kv_len);
    table.add_row({std::to_string(++rank), row.candidate.family, text_of(row.candidate.config),
                   std::to_string(row.candidate.split_cap), std::to_string(point->kv_len),
                   time_text(point->median_us), time_text(point->spread_us),
                   fmt::format("{:.0f}", bytes / point->median_us * 1e-3),
                   percent_text(*row.worst_regret),
                   row.registers == 0 ? "-" : std::to_string(row.registers),
                   fmt::format("{:.0f}", row.smem_bytes / 1024.0)});
  }
  return table.empty() ? "" : table.text();
}

std::string tune_text(const TuneOutcome& outcome) {
  if (outcome.compiled_only) return compiled_text(outcome);
  const TuneReport& report = outcome.report;
  std::string text = outcome.candidates.empty()
                         ? ""
                         : ranking_text(outcome.problem, outcome.candidates, kRankingRows);
  text += winners_text(report.winners);
  if (report.num_cached == report.num_problems) {
    text += fmt::format("all {} already tuned: nothing was compiled or timed\n",
                        count_text(report.num_problems, "problem"));
  } else {
    text += counts_text(report) + fmt::format(", {} timed\n", report.num_timed);
  }
  text += phases_text(report) + provisional_text(report) + failures_text(report) +
          missing_text(outcome);
  const std::string kept =
      report.num_cached == 0 ? "" : fmt::format(", kept {}", report.num_cached);
  return text + fmt::format("stored {}{} for {} ({}) in {}\n",
                            count_text(report.num_tuned, "winner"), kept, outcome.device.name,
                            outcome.device.arch, outcome.cache_path);
}

int tune_exit_code(const TuneReport& report, int interrupt_code) {
  if (report.interrupted) return interrupt_code;
  if (!report.complete) return kExitPartial;
  return report.failures.empty() ? kExitDone : kExitFailed;
}

}  // namespace attune
