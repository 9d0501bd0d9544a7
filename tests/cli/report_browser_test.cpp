// The page of attune report in a headless Chromium, driven by browse_report.py. Skips and says so where
// Chromium, Python or the script are missing, or fails when ATTUNE_REQUIRE_CHROMIUM=1.
#include <algorithm>
#include <optional>
#include <sstream>

#include "tests/cli/made_up_report.h"
#include "tests/cli/program.h"

namespace attune {
namespace {

std::optional<std::string> find_in_path(const std::vector<std::string>& names) {
  const char* path = std::getenv("PATH");
  for (const std::string& name : names) {
    std::istringstream folders(path == nullptr ? "" : path);
    for (std::string folder; std::getline(folders, folder, ':');) {
      const std::string file = folder + "/" + name;
      if (access(file.c_str(), X_OK) == 0) return file;
    }
  }
  return std::nullopt;
}

class ReportInBrowser : public ProgramTest {
 protected:
  void SetUp() override {
    chromium_ = find_in_path({"chromium", "chromium-browser", "google-chrome"}).value_or("");
    python_ = find_in_path({"python3"}).value_or("");
    if (!chromium_.empty() && !python_.empty() && std::filesystem::exists(ATTUNE_BROWSE_REPORT)) {
      return;
    }
    const std::string missing = "chromium='" + chromium_ + "' python='" + python_ +
                                "' script=" ATTUNE_BROWSE_REPORT
                                "; install chromium and python3 (scripts/bootstrap.sh --test)";
    const char* required = std::getenv("ATTUNE_REQUIRE_CHROMIUM");
    if (required != nullptr && std::string_view(required) == "1") FAIL() << missing;
    GTEST_SKIP() << missing;
  }

  std::string chromium_, python_;
};

std::vector<double> numbers(const nlohmann::json& keys) {
  std::vector<double> all;
  for (const auto& key : keys) all.push_back(std::stod(key.get<std::string>()));
  return all;
}

// One test, because starting the browser takes most of its time.
TEST_F(ReportInBrowser, SortsFiltersFitsAPhoneAndPrintsWithoutAskingForAnything) {
  const std::string file = (folder_ / "report.html").string();
  fill_report_cache(*TuneStore::open(cache()));
  ASSERT_EQ(run({"report", "-o", file, cache_flag()}).exit_code, 0);
  const Finished browsed = start(python_, {ATTUNE_BROWSE_REPORT, chromium_, file}).wait();
  ASSERT_EQ(browsed.exit_code, 0) << browsed.err;
  const auto seen = browsed.json();

  EXPECT_TRUE(seen["console"].empty()) << seen["console"];
  EXPECT_TRUE(seen["requests"].empty()) << seen["requests"];

  // All of it is there without scripts, which only add controls.
  EXPECT_GT(seen["rows"], 20);
  EXPECT_EQ(seen["rows"], seen["rows_without_scripts"]);
  EXPECT_EQ(seen["buttons_without_scripts"], 0);
  EXPECT_GT(seen["plots"], 20);

  const std::vector<double> up = numbers(seen["up"]["keys"]), down = numbers(seen["down"]["keys"]);
  EXPECT_EQ(seen["up"]["direction"], "ascending");
  EXPECT_EQ(seen["down"]["direction"], "descending");
  EXPECT_EQ(up.size(), 6u);
  EXPECT_LT(up.front(), up.back());
  EXPECT_TRUE(std::is_sorted(up.begin(), up.end())) << seen["up"];
  EXPECT_TRUE(std::equal(up.begin(), up.end(), down.rbegin(), down.rend())) << seen["down"];
  EXPECT_EQ(seen["by_text"]["keys"][0], kTuned);
  EXPECT_EQ(seen["by_text"]["keys"][5], kOlderTemplate);
  EXPECT_EQ(seen["filtered"], nlohmann::json::array({kProvisional}));

  // What others wrote is text.
  const std::string text = seen["text"];
  EXPECT_NE(text.find(kHostileDetail), std::string::npos);
  EXPECT_NE(text.find(kHostileGpu), std::string::npos);
  EXPECT_EQ(seen["injected"], "undefined");

  EXPECT_EQ(seen["phone_width"], 360);

  // On paper parts are open, but for the lists of pruned candidates.
  EXPECT_GE(seen["print"].size(), 5u);
  for (const auto& part : seen["print"]) EXPECT_NE(part["bulk"], part["shown"]) << part;
  EXPECT_EQ(seen["pdf"], "%PDF-");
  EXPECT_EQ(seen["open_after_print"], 0);
}

}  // namespace
}  // namespace attune
