// HTML in pieces. Text becomes markup by one function, which escapes it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attune {

// Markup. Only what this header makes, and text that the program itself holds, gets into one.
struct Html {
  std::string markup;

  Html& operator+=(const Html& other) {
    markup += other.markup;
    return *this;
  }
  friend Html operator+(Html a, const Html& b) { return a += b; }
};

// Of any text: & < > " ' are escaped, control characters replaced.
Html escaped(std::string_view content);

using Attributes = std::vector<std::pair<std::string_view, std::string>>;

// <name attributes>inner</name>; the values of attributes are escaped.
Html element(std::string_view name, const Attributes& attributes, const Html& inner);
Html element(std::string_view name, const Html& inner);
// Without an end: <wbr>, <input>.
Html open_tag(std::string_view name, const Attributes& attributes = {});

// A table in a box of its own that scrolls sideways, so that the page never has to.
struct HtmlCell {
  Html content;
  std::string sort_key = {};  // what the column sorts by; empty: the text
};
HtmlCell text_cell(std::string_view content);
HtmlCell number_cell(double value, std::string_view shown);
HtmlCell none_cell();  // sorts last
struct HtmlColumn {
  std::string header;
  bool is_number = false;  // right-aligned
};
class HtmlTable {
 public:
  // `label` names the table to readers of the page that cannot see it.
  HtmlTable(std::string label, std::vector<HtmlColumn> columns)
      : label_(std::move(label)), columns_(std::move(columns)) {}

  // As many cells as columns.
  void add_row(const std::vector<HtmlCell>& cells, const Attributes& attributes = {});
  bool empty() const { return rows_.markup.empty(); }
  // `kind` is its class: "sortable" tables get buttons where scripts run.
  Html html(const std::string& kind = {}) const;

 private:
  std::string label_;
  std::vector<HtmlColumn> columns_;
  Html rows_;
};

}  // namespace attune
