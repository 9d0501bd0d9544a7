#include "cli/report.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include <fmt/format.h>

#include "common/error.h"

namespace attune {

void Table::add_row(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = columns_[i].header.size();
    for (const auto& row : rows_) width = std::max(width, row[i].size());
    widths.push_back(width);
  }
  std::string text;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const bool left = columns_[i].align == Align::kLeft;
      line += i == 0 ? "" : "  ";
      line += left ? fmt::format("{:<{}}", cell_of(i), widths[i])
                   : fmt::format("{:>{}}", cell_of(i), widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line([&](std::size_t i) { return columns_[i].header; });
  for (const auto& row : rows_) add_line([&](std::size_t i) { return row[i]; });
  return text;
}

std::string time_text(double us) { return fmt::format("{:.2f}", us); }

std::string percent_text(double fraction) { return fmt::format("{:.1f}%", fraction * 100); }

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::optional<std::int64_t> parse_utc(const std::string& text) {
  std::tm time{};
  const char* end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &time);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return timegm(&time);
}

std::string age_text(const std::string& utc, std::int64_t now) {
  const auto then = parse_utc(utc);
  if (!then) return "?";
  const std::int64_t seconds = std::max<std::int64_t>(0, now - *then);
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / (24 * 3600));
}

std::string count_text(std::size_t count, std::string_view noun) {
  if (count == 1) return fmt::format("1 {}", noun);
  if (noun.ends_with('y')) return fmt::format("{} {}ies", count, noun.substr(0, noun.size() - 1));
  return fmt::format("{} {}s", count, noun);
}

std::string reasons_text(std::size_t count, std::string_view what, const ReasonCounts& reasons) {
  std::string list;
  for (const auto& [reason, number] : reasons) {
    std::string name = reason;
    std::replace(name.begin(), name.end(), '_', ' ');
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", name, number);
  }
  return list.empty() ? fmt::format("{} {}", count, what)
                      : fmt::format("{} {} ({})", count, what, list);
}

void print_text(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) {
    throw Error("cannot write the result", fmt::format("error={}", std::strerror(errno)),
                "check what standard output leads to");
  }
}

// Texts of a compiler or a file system need not be UTF-8.
void print_json(const Json& json) {
  print_text(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace attune
