// How results look: tables with aligned columns, numbers for people, JSON.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace attune {

using Json = nlohmann::ordered_json;

enum class Align { kLeft, kRight };

// Text with a header line; two spaces between columns, none at the end of a line.
class Table {
 public:
  struct Column {
    std::string header;
    Align align = Align::kRight;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as columns.
  void add_row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

std::string time_text(double us);             // "22.84"
std::string percent_text(double fraction);    // "12.3%"
std::string bytes_text(std::uint64_t bytes);  // "1.2 MiB"

// Seconds since 1970 of "2025-03-01T12:34:56Z"; empty for any other text.
std::optional<std::int64_t> parse_utc(const std::string& text);
// How long ago a moment was: "3 min", "5 h", "12 d"; "?" when the text is no time.
std::string age_text(const std::string& utc, std::int64_t now);

// "1 winner", "3 winners", "2 binaries" of "binary".
std::string count_text(std::size_t count, std::string_view noun);

using ReasonCounts = std::vector<std::pair<std::string, std::size_t>>;
// "41 pruned (smem 29, registers 12)", without the list when there is none. Underscores of the
// stored names become spaces.
std::string reasons_text(std::size_t count, std::string_view what, const ReasonCounts& reasons);

// The one write to stdout. Throws Error when it does not arrive, as on a full disk.
void print_text(std::string_view text);
void print_json(const Json& json);

}  // namespace attune
