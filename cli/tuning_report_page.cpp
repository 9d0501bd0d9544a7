#include "cli/tuning_report_page.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/cache_report.h"
#include "cli/tune_report.h"
#include "common/error.h"
#include "common/text.h"

namespace attune {
namespace {

std::string_view page_file(std::string_view name) {
  for (const EmbeddedFile& file : report_page_files()) {
    if (file.name == name) return file.text;
  }
  throw Error("a part of the page is missing", fmt::format("file={}", name), "build attune again");
}

// Replaces each {{name}} of a file of the page. In one pass: what is put in stays as it is.
std::string fill(std::string_view form,
                 const std::vector<std::pair<std::string_view, std::string>>& values) {
  std::string filled;
  while (true) {
    const std::size_t begin = form.find("{{");
    filled += form.substr(0, begin);
    if (begin == std::string_view::npos) return filled;
    const std::size_t end = form.find("}}", begin);
    const std::string_view name = form.substr(begin + 2, end - begin - 2);
    const auto value = std::find_if(values.begin(), values.end(),
                                    [&](const auto& one) { return one.first == name; });
    if (value == values.end()) {
      throw Error("a part of the page has no value", fmt::format("name={}", name),
                  "this is a fault of attune");
    }
    filled += value->second;
    form.remove_prefix(end + 2);
  }
}

std::string random_nonce() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What a GPU's winners come to.
struct Sums {
  std::size_t winners = 0, served = 0, retimed = 0, not_served = 0, provisional = 0;
  std::vector<double> gains, floor_shares;
  std::string latest;
};

Sums sums_of(const ReportGpu& gpu) {
  Sums sums;
  sums.winners = gpu.winners.size();
  for (const ReportWinner& one : gpu.winners) {
    ++(one.is_served ? sums.served : sums.not_served);
    if (one.is_served && !one.stale.empty()) ++sums.retimed;
    if (one.winner.provisional()) ++sums.provisional;
    sums.latest = std::max(sums.latest, one.winner.created_at);
    if (!one.is_served) continue;
    sums.gains.push_back(one.winner.margin_default);
    if (one.points.empty() || !one.points.back().floor_us) continue;
    sums.floor_shares.push_back(*one.points.back().floor_us / one.points.back().served.median_us);
  }
  return sums;
}

Html fact(const std::string& name, std::size_t value) {
  return element("div",
                 element("dt", escaped(name)) + element("dd", escaped(std::to_string(value))));
}

Html facts(const TuningReport& report) {
  Sums all;
  std::size_t num_missing = 0, num_rejections = 0;
  for (const ReportGpu& gpu : report.gpus) {
    const Sums sums = sums_of(gpu);
    all.winners += sums.winners;
    all.retimed += sums.retimed;
    all.not_served += sums.not_served;
    all.provisional += sums.provisional;
    num_missing += gpu.gaps.size();
    num_rejections += gpu.rejections.size();
  }
  return element("dl", {{"class", "facts"}},
                 fact("GPUs", report.gpus.size()) + fact("winners", all.winners) +
                     fact("to be timed again", all.retimed) + fact("not served", all.not_served) +
                     fact("provisional", all.provisional) + fact("without a winner", num_missing) +
                     fact("rejections", num_rejections));
}

std::string or_dash(const std::vector<double>& values) {
  return values.empty() ? "-" : percent_text(median(values));
}

Html gpu_table(const TuningReport& report) {
  HtmlTable table("Results by GPU", {{"GPU"},
                                     {"winners", true},
                                     {"served", true},
                                     {"to be timed again", true},
                                     {"median gain over default", true},
                                     {"largest gain", true},
                                     {"median share of floor", true},
                                     {"driver"},
                                     {"compiler"},
                                     {"latest winner"}});
  for (const ReportGpu& gpu : report.gpus) {
    const Sums sums = sums_of(gpu);
    const auto most = std::max_element(sums.gains.begin(), sums.gains.end());
    table.add_row({text_cell(gpu_text(gpu.identity)), text_cell(std::to_string(sums.winners)),
                   text_cell(std::to_string(sums.served)), text_cell(std::to_string(sums.retimed)),
                   text_cell(or_dash(sums.gains)),
                   text_cell(most == sums.gains.end() ? "-" : percent_text(*most)),
                   text_cell(or_dash(sums.floor_shares)), text_cell(gpu.today.driver_version),
                   text_cell(gpu.today.compiler_version), text_cell(sums.latest)});
  }
  return table.html();
}

Html nothing_tuned(const TuningReport& report) {
  return element("h2", {{"id", "summary"}}, escaped("Nothing is tuned")) +
         element("p", escaped("There is no result in ") + code(report.cache_path) +
                          escaped(" for what was asked. This fills it, on the machine with the "
                                  "GPU:")) +
         element("pre", escaped("attune tune --preset gemma4-31b --cache " + report.cache_path));
}

Html navigation() {
  constexpr std::pair<const char*, const char*> kLinks[] = {
      {"#summary", "Summary"}, {"#winners", "Winners"}, {"#times", "Times"},
      {"#stale", "Stale"},     {"#missing", "Missing"}, {"#rejections", "Rejections"}};
  Html items;
  for (const auto& [target, name] : kLinks) {
    items += element("li", element("a", {{"href", target}}, escaped(name)));
  }
  return element("nav", {{"aria-label", "Sections"}}, element("ul", items));
}

Html sections(const TuningReport& report) {
  if (report.gpus.empty()) return nothing_tuned(report);
  return element("h2", {{"id", "summary"}}, escaped("Summary")) + facts(report) +
         gpu_table(report) + winners_section(report) + times_section(report) +
         stale_section(report) + missing_section(report) + rejections_section(report);
}

}  // namespace

Html gpu_heading(const ReportGpu& gpu) { return element("h3", escaped(gpu_text(gpu.identity))); }

Html code(const std::string& content) { return element("code", escaped(content)); }

Html breakable_code(const std::string& text_form) {
  Html parts;
  for (const std::string_view part : split(text_form, '/')) {
    if (!parts.markup.empty()) parts += escaped("/") + open_tag("wbr");
    parts += escaped(part);
  }
  return element("code", parts);
}

Html badge(const std::string& kind, const std::string& label) {
  return element("span", {{"class", "badge " + kind}}, escaped(label));
}

std::string kv_text(const KvRange& kv) {
  return kv.min == kv.max ? std::to_string(kv.min) : fmt::format("{}-{}", kv.min, kv.max);
}

std::vector<HtmlColumn> time_columns() {
  return {{"time, µs", true}, {"default, µs", true}, {"floor, µs", true}, {"% of floor", true}};
}

std::vector<HtmlCell> time_cells(const ReportPoint& point) {
  const auto time_cell = [](const Measurement& one) {
    return number_cell(one.median_us,
                       fmt::format("{} ± {}", time_text(one.median_us), time_text(one.spread_us)));
  };
  const double share = point.floor_us.value_or(0) / point.served.median_us;
  return {time_cell(point.served), point.fallback ? time_cell(*point.fallback) : none_cell(),
          point.floor_us ? number_cell(*point.floor_us, time_text(*point.floor_us)) : none_cell(),
          point.floor_us ? number_cell(share, fmt::format("{:.0f}", share * 100)) : none_cell()};
}

std::string tuning_report_page(const TuningReport& report, const std::string& version) {
  std::string about = fmt::format("{}, read {}", report.cache_path, report.created_at);
  if (!report.base_paths.empty()) {
    about += fmt::format(", with the bases {}", fmt::join(report.base_paths, ", "));
  }
  const std::string footer = fmt::format(
      "attune {}. Times are medians, combine included; ± is half the interquartile range. attune "
      "explain PROBLEM tells more of one problem.",
      version);
  return fill(page_file("cli/report_page/page.html"),
              {{"nonce", random_nonce()},
               {"style", std::string(page_file("cli/report_page/page.css"))},
               {"script", std::string(page_file("cli/report_page/page.js"))},
               {"about", escaped(about).markup},
               {"navigation", report.gpus.empty() ? "" : navigation().markup},
               {"sections", sections(report).markup},
               {"footer", escaped(footer).markup}});
}

}  // namespace attune
