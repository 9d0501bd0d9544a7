// The sections of the page that are tables: winners, what is stale or missing, rejections.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "cli/tuning_report_page.h"
#include "common/text.h"
#include "jit/compiler.h"

namespace attune {
namespace {

Html states(const ReportWinner& one) {
  Html badges;
  for (const StaleReason& reason : one.stale) {
    badges += badge(reason.is_served ? "warn" : "bad", reason.label);
  }
  if (one.stale.empty()) {
    badges += one.is_served ? badge("good", "current") : badge("warn", "not served");
  }
  if (one.winner.provisional()) badges += badge("warn", "provisional");
  return badges;
}

// "2026-11-30 11:33" of a stored time.
std::string minute_text(const std::string& utc) {
  std::string minute = utc.substr(0, 16);
  std::replace(minute.begin(), minute.end(), 'T', ' ');
  return minute;
}

HtmlCell gain_cell(const Winner& winner) {
  if (winner.default_candidate.empty()) return none_cell();
  if (winner.default_candidate == winner.candidate.text()) return number_cell(0, "is the default");
  std::string gain = percent_text(winner.margin_default);
  if (winner.margin_default_low > 0) {
    gain += fmt::format(" (at least {})", percent_text(winner.margin_default_low));
  }
  return number_cell(winner.margin_default, gain);
}

void add_winner(const ReportWinner& one, HtmlTable* table) {
  const Winner& winner = one.winner;
  std::vector<HtmlCell> cells = {
      {breakable_code(winner.problem.text())},
      text_cell(std::string(name_of(winner.problem.op))),
      number_cell(winner.problem.kv.min * 1e10 + winner.problem.kv.max, kv_text(winner.problem.kv)),
      {code(winner.candidate.text())},
      {states(one)}};
  if (one.points.empty()) {
    cells.insert(cells.end(), 1 + time_columns().size(), none_cell());
  } else {
    const ReportPoint& last = one.points.back();
    cells.push_back(text_cell(std::to_string(last.served.kv_len)));
    for (HtmlCell& cell : time_cells(last)) cells.push_back(std::move(cell));
  }
  cells.push_back(gain_cell(winner));
  cells.push_back(winner.runner_up.empty() ? none_cell()
                                           : number_cell(winner.margin_runner_up,
                                                         percent_text(winner.margin_runner_up)));
  cells.push_back({escaped(minute_text(winner.created_at)), winner.created_at});
  cells.push_back(text_cell(winner.driver_version));
  cells.push_back(winner.method < 0 ? number_cell(winner.method, "unfinished")
                                    : text_cell(std::to_string(winner.method)));
  table->add_row(cells);
}

std::string floor_source(const ReportGpu& gpu) {
  if (!gpu.ceilings) {
    return "The floor is not known: attune has no rates of this GPU. attune bench PROBLEM --json "
           "measures them, and attune report --bench FILE takes them from there.";
  }
  const std::string rates =
      fmt::format("{:.2f} TB/s and {:.0f} TFLOP/s", gpu.ceilings->read_bytes_per_s * 1e-12,
                  gpu.ceilings->tensor_flops_per_s * 1e-12);
  if (gpu.are_ceilings_measured) {
    return fmt::format(
        "The floor is what the bytes and FLOPs take at {}, as attune bench measured "
        "on this GPU.",
        rates);
  }
  return fmt::format(
      "The floor is what the bytes and FLOPs take at {}, the rates that the cost model has of the "
      "architecture; attune report --bench FILE takes those that attune bench measured.",
      rates);
}

std::string compared_with(const ReportGpu& gpu) {
  if (gpu.today.compiler_version.empty()) return {};  // nothing is known to compare with
  const auto parts = split(gpu.identity, '|');
  const std::string arch(parts.size() > 1 ? parts[1] : "");
  return fmt::format("Compared with driver {} and {} of {}.",
                     gpu.today.driver_version.empty() ? "-" : gpu.today.driver_version,
                     compiler_name(arch, gpu.today.compiler_version),
                     gpu.today.is_here ? "this machine" : "the GPU's latest winner");
}

// "served" or what becomes of a stale winner.
std::string effect_of(const ReportWinner& one) {
  const bool is_miss = std::any_of(one.stale.begin(), one.stale.end(),
                                   [](const StaleReason& reason) { return !reason.is_served; });
  if (is_miss) return "not served by this attune";
  return one.is_served ? "served, timed again by the next tune" : "another winner is served";
}

// One cause of rejections: which texts it has, and of each the candidates by problem.
Html rejection_lists(const std::vector<StoredRejection>& rejections, const RejectionGroup& group) {
  std::map<std::string, std::map<std::string, std::string>> candidates;  // by text and problem
  for (const std::size_t row : group.rows) {
    const StoredRejection& one = rejections[row];
    std::string& list = candidates[one.record.rejection.detail][one.problem.text()];
    list += (list.empty() ? "" : ", ") + one.record.candidate.text();
  }
  HtmlTable table("Candidates by text", {{"text"}, {"candidates by problem"}});
  for (const auto& [detail, by_problem] : candidates) {
    Html lists;
    for (const auto& [problem, list] : by_problem) {
      lists += element("li", breakable_code(problem) + escaped(": ") + code(list));
    }
    table.add_row({{element("div", {{"class", "text"}}, escaped(detail))},
                   {element("ul", {{"class", "lists text"}}, lists)}});
  }
  return table.html();
}

std::string with_spaces(std::string_view name) {
  std::string words(name);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

Html rejection_details(const ReportGpu& gpu, const RejectionGroup& group) {
  const std::string title =
      fmt::format("{}: {}, {}", name_of(group.stage), with_spaces(name_of(group.reason)),
                  count_text(group.rows.size(), "candidate"));
  // Thousands of candidates are pruned: their lists are not for paper.
  const Attributes attributes =
      group.stage == Stage::kPrune ? Attributes{{"class", "bulk"}} : Attributes{};
  return element("details", attributes,
                 element("summary", escaped(title)) + rejection_lists(gpu.rejections, group)) +
         Html{"\n"};
}

Html rejection_counts(const ReportGpu& gpu, const std::vector<RejectionGroup>& groups) {
  HtmlTable table("Rejections by reason",
                  {{"stage"}, {"reason"}, {"count", true}, {"problems", true}, {"first example"}});
  for (const RejectionGroup& group : groups) {
    std::set<Problem> problems;
    for (const std::size_t row : group.rows) problems.insert(gpu.rejections[row].problem);
    const RejectionRecord& first = gpu.rejections[group.rows.front()].record;
    table.add_row(
        {text_cell(std::string(name_of(group.stage))),
         text_cell(with_spaces(name_of(group.reason))),
         text_cell(std::to_string(group.rows.size())),
         text_cell(std::to_string(problems.size())),
         {element("div", {{"class", "text"}},
                  code(first.candidate.text()) + escaped(": " + first.rejection.detail))}});
  }
  return table.html("sortable");
}

}  // namespace

Html winners_section(const TuningReport& report) {
  std::vector<HtmlColumn> columns = {{"problem"},   {"op"},    {"kv range", true},
                                     {"candidate"}, {"state"}, {"at kv", true}};
  for (HtmlColumn& column : time_columns()) columns.push_back(std::move(column));
  for (HtmlColumn& column : std::vector<HtmlColumn>{{"gain over default", true},
                                                    {"over runner-up", true},
                                                    {"measured"},
                                                    {"driver"},
                                                    {"method", true}}) {
    columns.push_back(std::move(column));
  }
  Html section = element("h2", {{"id", "winners"}}, escaped("Winners"));
  for (const ReportGpu& gpu : report.gpus) {
    HtmlTable table("Winners of " + gpu.identity, columns);
    for (const ReportWinner& one : gpu.winners) add_winner(one, &table);
    section += gpu_heading(gpu);
    section += element("p", {{"class", "muted"}}, escaped(floor_source(gpu)));
    section +=
        table.empty() ? element("p", escaped("No winner.")) : table.html("sortable filterable");
  }
  return section;
}

Html stale_section(const TuningReport& report) {
  Html section = element("h2", {{"id", "stale"}}, escaped("Stale"));
  for (const ReportGpu& gpu : report.gpus) {
    HtmlTable table("Stale winners of " + gpu.identity,
                    {{"problem"}, {"candidate"}, {"why"}, {"effect"}});
    for (const ReportWinner& one : gpu.winners) {
      if (one.stale.empty()) continue;
      std::string why;
      for (const StaleReason& reason : one.stale) why += (why.empty() ? "" : "; ") + reason.text;
      table.add_row({{breakable_code(one.winner.problem.text())},
                     {code(one.winner.candidate.text())},
                     text_cell(why),
                     text_cell(effect_of(one))});
    }
    section += gpu_heading(gpu) + element("p", {{"class", "muted"}}, escaped(compared_with(gpu)));
    section +=
        table.empty() ? element("p", escaped("No winner is stale.")) : table.html("sortable");
  }
  return section;
}

Html missing_section(const TuningReport& report) {
  Html section = element("h2", {{"id", "missing"}}, escaped("Without a winner of their own"));
  for (const ReportGpu& gpu : report.gpus) {
    HtmlTable table("Problems without a winner on " + gpu.identity,
                    {{"problem"}, {"answer"}, {"served"}, {"why"}, {"to tune it"}});
    for (const ReportGap& gap : gpu.gaps) {
      table.add_row({{breakable_code(gap.problem.text())},
                     text_cell(gap.match),
                     gap.candidate.empty() ? none_cell() : HtmlCell{code(gap.candidate)},
                     {element("div", {{"class", "text"}}, escaped(gap.reason))},
                     {code(gap.tune_command)}});
    }
    section += gpu_heading(gpu);
    section += table.empty() ? element("p", escaped("Every problem has its winner."))
                             : table.html("sortable");
  }
  return section;
}

Html rejections_section(const TuningReport& report) {
  Html section = element("h2", {{"id", "rejections"}}, escaped("Rejections by reason"));
  for (const ReportGpu& gpu : report.gpus) {
    section += gpu_heading(gpu);
    const std::vector<RejectionGroup> groups = group_rejections(gpu.rejections);
    if (groups.empty()) {
      section += element("p", escaped("Nothing was rejected."));
      continue;
    }
    section += rejection_counts(gpu, groups);
    for (const RejectionGroup& group : groups) section += rejection_details(gpu, group);
  }
  return section;
}

}  // namespace attune
