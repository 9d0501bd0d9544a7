#include "cli/html.h"

#include <gtest/gtest.h>

namespace attune {
namespace {

TEST(Html, EscapesTextAndAttributes) {
  EXPECT_EQ(escaped("<script>\"a\" & 'b'</script>").markup,
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;");
  EXPECT_EQ(element("p", {{"title", "\"><b>"}}, escaped("x")).markup,
            "<p title=\"&quot;&gt;&lt;b&gt;\">x</p>");
}

TEST(Html, ReplacesControlCharactersButLinesAndTabs) {
  EXPECT_EQ(escaped(std::string_view("a\0b\x1b[1m\n\tc\x7f", 11)).markup,
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd[1m\n\tc\xef\xbf\xbd");
  EXPECT_EQ(escaped("µs ± 1").markup, "µs ± 1");
}

TEST(Html, TablesHaveHeadersAndSortKeys) {
  HtmlTable table("A <table>", {{"name"}, {"time, µs", true}});
  EXPECT_TRUE(table.empty());
  table.add_row({text_cell("a&b"), number_cell(12.5, "12.50 ± 0.10")});
  EXPECT_FALSE(table.empty());
  const std::string markup = table.html("sortable").markup;
  for (const char* part :
       {"aria-label=\"A &lt;table&gt;\"", "<caption>A &lt;table&gt;</caption>",
        "<table class=\"sortable\">", "<th scope=\"col\" class=\"number\">time, µs</th>",
        "<th scope=\"row\">a&amp;b</th>",
        "<td class=\"number\" data-sort=\"12.5\">12.50 ± 0.10</td>"}) {
    EXPECT_NE(markup.find(part), std::string::npos) << part << "\n" << markup;
  }
}

}  // namespace
}  // namespace attune
