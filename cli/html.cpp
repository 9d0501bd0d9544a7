#include "cli/html.h"

#include <cassert>

#include <fmt/format.h>

namespace attune {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD in UTF-8

void append_escaped(std::string_view content, std::string* markup) {
  for (const char letter : content) {
    switch (letter) {
      case '&':
        *markup += "&amp;";
        break;
      case '<':
        *markup += "&lt;";
        break;
      case '>':
        *markup += "&gt;";
        break;
      case '"':
        *markup += "&quot;";
        break;
      case '\'':
        *markup += "&#39;";
        break;
      default: {
        const auto code = static_cast<unsigned char>(letter);
        const bool is_control = (code < 0x20 && letter != '\n' && letter != '\t') || code == 0x7f;
        if (is_control) {
          *markup += kReplacement;
        } else {
          *markup += letter;
        }
      }
    }
  }
}

}  // namespace

Html escaped(std::string_view content) {
  Html html;
  html.markup.reserve(content.size());
  append_escaped(content, &html.markup);
  return html;
}

Html open_tag(std::string_view name, const Attributes& attributes) {
  Html html{"<" + std::string(name)};
  for (const auto& [key, value] : attributes) {
    html.markup += " " + std::string(key) + "=\"";
    append_escaped(value, &html.markup);
    html.markup += "\"";
  }
  html.markup += ">";
  return html;
}

Html element(std::string_view name, const Attributes& attributes, const Html& inner) {
  return open_tag(name, attributes) + inner + Html{"</" + std::string(name) + ">"};
}

Html element(std::string_view name, const Html& inner) { return element(name, {}, inner); }

HtmlCell text_cell(std::string_view content) { return {escaped(content)}; }

HtmlCell none_cell() { return text_cell("-"); }

HtmlCell number_cell(double value, std::string_view shown) {
  return {escaped(shown), fmt::format("{}", value)};
}

void HtmlTable::add_row(const std::vector<HtmlCell>& cells, const Attributes& attributes) {
  assert(cells.size() == columns_.size());
  Html row;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    Attributes of_cell;
    if (columns_[i].is_number) of_cell.emplace_back("class", "number");
    if (!cells[i].sort_key.empty()) of_cell.emplace_back("data-sort", cells[i].sort_key);
    if (i == 0) of_cell.emplace_back("scope", "row");
    row += element(i == 0 ? "th" : "td", of_cell, cells[i].content);
  }
  rows_ += element("tr", attributes, row) + Html{"\n"};
}

Html HtmlTable::html(const std::string& kind) const {
  Html head;
  for (const HtmlColumn& column : columns_) {
    Attributes attributes = {{"scope", "col"}};
    if (column.is_number) attributes.emplace_back("class", "number");
    head += element("th", attributes, escaped(column.header));
  }
  const Html table = element("caption", escaped(label_)) + element("thead", element("tr", head)) +
                     Html{"\n"} + element("tbody", Html{"\n"} + rows_);
  // Reachable by the keyboard, because it scrolls.
  return element("div",
                 {{"class", "table-box"},
                  {"tabindex", "0"},
                  {"role", "region"},
                  {"aria-label", label_}},
                 element("table", {{"class", kind}}, table)) +
         Html{"\n"};
}

}  // namespace attune
