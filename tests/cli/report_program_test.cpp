// attune report as a program.
#include "tests/cli/made_up_report.h"
#include "tests/cli/program.h"

namespace attune {
namespace {

class ReportProgram : public ProgramTest {
 protected:
  void fill() { fill_report_cache(*TuneStore::open(cache())); }
  std::string page() const { return (folder_ / "report.html").string(); }
};

TEST_F(ReportProgram, WritesAPageAndSaysWhatIsInIt) {
  fill();
  const std::string before = read_file(cache());
  const Finished finished = run({"report", "-o", page(), cache_flag()});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(finished.out,
            "7 winners of 2 GPUs, 3 stale, 3 problems without one, in " + page() + "\n");
  EXPECT_EQ(finished.err, "");
  EXPECT_TRUE(read_file(page()).starts_with("<!doctype html>"));
  EXPECT_EQ(read_file(cache()), before);
}

TEST_F(ReportProgram, WritesToStdout) {
  fill();
  const Finished finished = run({"report", "-o", "-", cache_flag()});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_TRUE(finished.out.starts_with("<!doctype html>"));
  EXPECT_TRUE(finished.out.ends_with("</html>\n"));
}

TEST_F(ReportProgram, PrintsJson) {
  fill();
  const auto json = run({"report", "--json", "--gpu", "H200", cache_flag()}).json();
  EXPECT_EQ(json["cache"], cache().string());
  ASSERT_EQ(json["gpus"].size(), 1u);
  EXPECT_EQ(json["gpus"][0]["winners"].size(), 6u);
  const Finished both = run({"report", "--json", "-o", page(), kTuned, cache_flag()});
  EXPECT_EQ(both.json()["gpus"].size(), 2u);
  EXPECT_EQ(both.json()["gpus"][0]["winners"].size(), 1u);
  EXPECT_TRUE(std::filesystem::exists(page()));
}

TEST_F(ReportProgram, HasWhatBasesHave) {
  fill();
  const std::string base = (folder_ / "base.db").string();
  EXPECT_EQ(run({"cache", "export", base, cache_flag()}).exit_code, 0);
  const auto json =
      run({"report", "--json", "--cache-base", base, "--cache", (folder_ / "empty.db").string()})
          .json();
  EXPECT_EQ(json["bases"][0], base);
  EXPECT_EQ(json["gpus"].size(), 2u);
}

TEST_F(ReportProgram, OfNoCacheIsAPageThatSaysWhatToDo) {
  const Finished finished = run({"report", "-o", page(), cache_flag()});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_NE(read_file(page()).find("attune tune --preset gemma4-31b --cache " + cache().string()),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(cache()));
}

TEST_F(ReportProgram, WrongUseExitsWithTwo) {
  fill();
  const std::string folder = folder_.path().string();
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"report"},
                                             {"report", "-o", folder},
                                             {"report", "-o", "-", "--json"},
                                             {"report", "-o", page(), "--gpu", "H999"},
                                             {"report", "-o", page(), "--preset", "no-such-model"},
                                             {"report", "-o", page(), "--bench", "no-such-file"},
                                             {"report", "-o", page(), "nonsense"}}) {
    auto arguments = wrong;
    arguments.push_back(cache_flag());
    const Finished finished = run(arguments);
    EXPECT_EQ(finished.exit_code, 2) << ::testing::PrintToString(wrong) << finished.err;
    EXPECT_EQ(finished.out, "");
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
  }
  EXPECT_FALSE(std::filesystem::exists(page()));
}

TEST_F(ReportProgram, FailsWhereItCannotReadOrWrite) {
  fill();
  EXPECT_EQ(
      run({"report", "-o", (folder_ / "no/such/folder.html").string(), cache_flag()}).exit_code, 1);
  folder_.write("text.db", "hello");
  EXPECT_EQ(run({"report", "-o", page(), "--cache", (folder_ / "text.db").string()}).exit_code, 1);
}

}  // namespace
}  // namespace attune
