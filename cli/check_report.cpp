#include "cli/check_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/progress.h"

namespace attune {
namespace {

std::string_view copies_of(const CheckRow& row) { return row.early_copies ? "early" : "late"; }

// A fault has several lines; all but the first are indented below their candidate.
std::string indented(const std::string& text) {
  std::string result;
  for (const char c : text.substr(0, text.find_last_not_of('\n') + 1)) {
    result += c == '\n' ? std::string("\n    ") : std::string(1, c);
  }
  return result;
}

std::string row_text(const CheckRow& row) {
  const std::string name = fmt::format("{} ({} copies)", row.candidate.text(), copies_of(row));
  if (row.failure) {
    return fmt::format("FAILED {}\n    {}: {}\n", name, name_of(row.failure->reason),
                       indented(row.failure->detail));
  }
  return fmt::format("ok     {}: {}, relative L2 {:.1e}\n", name,
                     count_text(static_cast<std::size_t>(row.admission.num_cases), "case"),
                     row.admission.relative_l2);
}

}  // namespace

std::size_t CheckOutcome::num_failed() const {
  return static_cast<std::size_t>(
      std::count_if(rows.begin(), rows.end(), [](const CheckRow& row) { return row.failure; }));
}

std::string check_text(const CheckOutcome& outcome) {
  std::string text;
  for (const CheckRow& row : outcome.rows) text += row_text(row);
  text += fmt::format("{} on {}: {}, {} failed, {}\n", outcome.problem.text(), outcome.target,
                      count_text(outcome.rows.size(), "check"), outcome.num_failed(),
                      elapsed_text(outcome.total_s));
  if (outcome.num_left > 0) text += fmt::format("interrupted: {} left\n", outcome.num_left);
  return text;
}

Json check_json(const CheckOutcome& outcome) {
  Json checks = Json::array();
  for (const CheckRow& row : outcome.rows) {
    Json check = {{"candidate", row.candidate.text()},
                  {"copies", copies_of(row)},
                  {"ok", !row.failure},
                  {"cases", row.admission.num_cases},
                  {"relative_l2", row.admission.relative_l2},
                  {"failure", Json()}};
    if (row.failure) {
      check["failure"] = {{"reason", name_of(row.failure->reason)},
                          {"detail", row.failure->detail}};
    }
    checks.push_back(std::move(check));
  }
  return {{"problem", outcome.problem.text()},
          {"target", outcome.target},
          {"checks", checks},
          {"failed", outcome.num_failed()},
          {"left", outcome.num_left},
          {"total_s", outcome.total_s}};
}

}  // namespace attune
