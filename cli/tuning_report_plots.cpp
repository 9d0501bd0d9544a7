// The section of the page with the times: a figure for each op and shape, its numbers beneath.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/plot.h"
#include "cli/tuning_report_page.h"
#include "common/text.h"

namespace attune {
namespace {

// A measured length of a winner.
struct TimedLength {
  const ReportWinner* winner;
  const ReportPoint* point;
};
// By length, the fastest winner first.
using ShapeTimes = std::map<int, std::vector<TimedLength>>;

// Winners whose times are shown: what is served, and of a problem without that the latest.
std::vector<const ReportWinner*> shown_winners(const ReportGpu& gpu) {
  std::map<Problem, const ReportWinner*> shown;
  const auto rank = [](const ReportWinner& one) {
    return std::make_pair(one.is_served, one.winner.created_at);
  };
  for (const ReportWinner& one : gpu.winners) {
    const ReportWinner*& best = shown[one.winner.problem];
    if (best == nullptr || rank(*best) < rank(one)) best = &one;
  }
  std::vector<const ReportWinner*> all;
  for (const auto& [problem, winner] : shown) all.push_back(winner);
  return all;
}

// What is common to the figures side by side: the problem without op, seqlen_q and kv range.
std::string layer_text(const Problem& problem) {
  if (problem.is_linear()) return problem.text();
  std::vector<std::string_view> kept;
  const std::string form = problem.text();
  const auto parts = split(form, '/');
  kept.push_back(parts.at(1));  // the batch
  kept.insert(kept.end(), parts.begin() + 4, parts.end());
  return fmt::format("{}", fmt::join(kept, "/"));
}

std::string op_text(const Problem& problem) {
  if (problem.op == Op::kDecode) return "decode";
  if (problem.is_linear()) {
    return fmt::format("{}, {} tokens", name_of(problem.op), problem.linear_tokens);
  }
  return fmt::format("{}, {} query tokens", name_of(problem.op), problem.seqlen_q);
}

ShapeTimes times_of(const std::vector<const ReportWinner*>& winners) {
  ShapeTimes times;
  for (const ReportWinner* winner : winners) {
    for (const ReportPoint& point : winner->points) {
      times[point.served.kv_len].push_back({winner, &point});
    }
  }
  for (auto& [kv_len, all] : times) {
    std::stable_sort(all.begin(), all.end(), [](const TimedLength& a, const TimedLength& b) {
      return a.point->served.median_us < b.point->served.median_us;
    });
  }
  return times;
}

// "3.10 to 235.17"
std::string range_text(const std::vector<PlotPoint>& line) {
  if (line.empty()) return "not known";
  const auto [least, most] = std::minmax_element(
      line.begin(), line.end(), [](const auto& a, const auto& b) { return a.y < b.y; });
  return fmt::format("{} to {}", time_text(least->y), time_text(most->y));
}

struct Lines {
  PlotSeries winner{.kind = "winner", .marker = Marker::kDisc};
  PlotSeries fallback{.kind = "default", .marker = Marker::kSquare};
  PlotSeries floor{.kind = "floor"};
  PlotSeries gain{.kind = "default", .marker = Marker::kSquare};  // percent
};

// Lines go through the fastest winner of each length; slower ones, of wider ranges, are markers.
Lines lines_of(const ShapeTimes& times) {
  Lines lines;
  for (const auto& [kv_len, all] : times) {
    const double x = kv_len;
    for (const TimedLength& one : all) {
      const bool is_fastest = &one == &all.front();
      const double us = one.point->served.median_us;
      (is_fastest ? lines.winner.line : lines.winner.single).push_back({x, us});
      if (!is_fastest) continue;
      if (one.point->floor_us) lines.floor.line.push_back({x, *one.point->floor_us});
      if (!one.point->fallback) continue;
      const double default_us = one.point->fallback->median_us;
      lines.fallback.line.push_back({x, default_us});
      lines.gain.line.push_back({x, (default_us / us - 1) * 100});
    }
  }
  return lines;
}

// The rows of one figure.
void add_numbers(const std::string& op, const ShapeTimes& times, HtmlTable* table) {
  for (const auto& [kv_len, all] : times) {
    for (const auto& [winner, point] : all) {
      const Measurement& served = point->served;
      std::vector<HtmlCell> cells = {text_cell(op),
                                     text_cell(std::to_string(kv_len)),
                                     text_cell(kv_text(winner->winner.problem.kv)),
                                     {code(winner->winner.candidate.text())}};
      for (HtmlCell& cell : time_cells(*point)) cells.push_back(std::move(cell));
      cells.push_back(text_cell(
          served.high_us > 0
              ? fmt::format("{} to {}", time_text(served.low_us), time_text(served.high_us))
              : "-"));
      cells.push_back(text_cell(std::to_string(served.num_samples)));
      table->add_row(cells);
    }
  }
}

Html figure_of(const std::string& op, const std::string& layer, const ShapeTimes& times) {
  const Lines lines = lines_of(times);
  const std::string title = op + ", " + layer;
  const std::string lengths =
      fmt::format("kv_len {} to {}", times.begin()->first, times.rbegin()->first);
  Plot us{.title = "Times of " + title,
          .description = fmt::format("{}: winner {} µs, default {}, floor {}", lengths,
                                     range_text(lines.winner.line), range_text(lines.fallback.line),
                                     range_text(lines.floor.line)),
          .y_label = "µs by kv_len",
          .log_y = true,
          .height = 200,
          .series = {lines.floor, lines.fallback, lines.winner}};
  Plot gain{.title = "What the default takes longer in " + title,
            .description = fmt::format("{}: {} percent", lengths, range_text(lines.gain.line)),
            .y_label = "default over winner, %",
            .height = 110,
            .series = {lines.gain}};
  return element("figure", element("figcaption", escaped(op)) + svg_of(us) + svg_of(gain)) +
         Html{"\n"};
}

// Winners of a layer by op and seqlen_q; those that differ in their kv range share a figure.
using WinnersByOp = std::map<std::pair<Op, int>, std::vector<const ReportWinner*>>;

Html layer_part(const std::string& layer, const WinnersByOp& ops) {
  std::vector<HtmlColumn> columns = {{"op"}, {"kv_len", true}, {"kv range", true}, {"candidate"}};
  for (HtmlColumn& column : time_columns()) columns.push_back(std::move(column));
  columns.push_back({"95% interval, µs", true});
  columns.push_back({"samples", true});
  HtmlTable numbers("Times of " + layer, columns);
  Html figures;
  for (const auto& [op, winners] : ops) {
    const ShapeTimes times = times_of(winners);
    if (times.empty()) continue;
    const std::string name = op_text(winners.front()->winner.problem);
    figures += figure_of(name, layer, times);
    add_numbers(name, times, &numbers);
  }
  return element("h4", breakable_code(layer)) +
         element("div", {{"class", "plots"}}, Html{"\n"} + figures) +
         element("details", element("summary", escaped("Numbers")) + numbers.html("sortable"));
}

Html legend() {
  const auto item = [](const std::string& kind, Marker marker, const std::string& name) {
    return element("li", svg_sample(kind, marker) + escaped(" " + name));
  };
  return element("ul", {{"class", "legend"}},
                 item("winner", Marker::kDisc, "winner, through the fastest at each length") +
                     item("default", Marker::kSquare, "default") +
                     item("floor", Marker::kNone, "floor"));
}

}  // namespace

Html times_section(const TuningReport& report) {
  Html section =
      element("h2", {{"id", "times"}}, escaped("Times against default and floor")) + legend();
  for (const ReportGpu& gpu : report.gpus) {
    std::map<std::string, WinnersByOp> layers;
    for (const ReportWinner* one : shown_winners(gpu)) {
      const Problem& problem = one->winner.problem;
      layers[layer_text(problem)][{problem.op, problem.seqlen_q}].push_back(one);
    }
    section += gpu_heading(gpu);
    for (const auto& [layer, ops] : layers) section += layer_part(layer, ops);
  }
  return section;
}

}  // namespace attune
