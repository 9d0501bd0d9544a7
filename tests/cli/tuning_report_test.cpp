#include "cli/tuning_report.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "cli/bench_report.h"
#include "cli/tuning_report_page.h"
#include "common/error.h"
#include "tests/cli/made_up_report.h"
#include "tests/support/temporary_folder.h"

namespace attune {
namespace {

struct Filled {
  std::unique_ptr<TuneStore> store = TuneStore::open_in_memory();
  Filled() { fill_report_cache(*store); }
  TuningReport report(const ReportScope& scope = {}) const { return tuning_report(*store, scope); }
};

// The GPU whose name is the made-up one of most tests.
const ReportGpu& h200(const TuningReport& report) {
  return *std::find_if(report.gpus.begin(), report.gpus.end(),
                       [](const auto& gpu) { return gpu.identity == made_up_gpu().identity(); });
}

const ReportWinner& winner_of(const ReportGpu& gpu, const std::string& problem) {
  const auto found = std::find_if(gpu.winners.begin(), gpu.winners.end(), [&](const auto& one) {
    return one.winner.problem.text() == problem;
  });
  if (found == gpu.winners.end()) throw std::runtime_error("no winner of " + problem);
  return *found;
}

std::string labels(const ReportWinner& one) {
  std::string all;
  for (const StaleReason& reason : one.stale) all += reason.label + ";";
  return all;
}

TEST(TuningReport, HasEveryGpuWithItsWinners) {
  const TuningReport report = Filled().report();
  ASSERT_EQ(report.gpus.size(), 2u);
  EXPECT_EQ(h200(report).winners.size(), 6u);
  EXPECT_EQ(report.gpus[0].winners.size() + report.gpus[1].winners.size(), 7u);
}

TEST(TuningReport, SetsWinnersAgainstTheirDefaultAndFloor) {
  const TuningReport report = Filled().report();
  const ReportWinner& one = winner_of(h200(report), kTuned);
  ASSERT_EQ(one.points.size(), 13u);
  ASSERT_TRUE(one.points.back().fallback);
  EXPECT_NEAR(one.points.back().fallback->median_us, 5 * 1.1 * 1.1, 1e-9);
  ASSERT_TRUE(one.points.back().floor_us);
  const int kv_len = 4096;
  EXPECT_EQ(*one.points.back().floor_us,
            floor_us(Problem::parse(kTuned), {&kv_len, 1}, *h200(report).ceilings));
  EXPECT_FALSE(h200(report).are_ceilings_measured);
}

TEST(TuningReport, FloorIsThatOfTheBatchesThatWereTimed) {
  const Problem problem = Problem::parse("decode/b4/q1/kv1-4096/h8x2/d128/contiguous/bf16");
  const Ceilings ceilings{1e12, 1e15};
  const std::vector<int> alike = {4096, 4096, 4096, 4096}, unlike = {1024, 2048, 3072, 4096};
  EXPECT_DOUBLE_EQ(judged_floor_us(problem, 4096, ceilings),
                   (floor_us(problem, alike, ceilings) + floor_us(problem, unlike, ceilings)) / 2);
}

TEST(TuningReport, TakesMeasuredRatesForTheFloor) {
  ReportScope scope;
  scope.ceilings = {{made_up_gpu().name, "sm_90a", made_up_gpu().num_sms, {1e12, 1e15}},
                    {"NVIDIA H100", "sm_90a", 132, {2e12, 2e15}}};
  const TuningReport report = Filled().report(scope);
  EXPECT_TRUE(h200(report).are_ceilings_measured);
  EXPECT_EQ(h200(report).ceilings->read_bytes_per_s, 1e12);
}

TEST(TuningReport, ReadsRatesFromTheJsonOfABench) {
  const TemporaryFolder folder;
  BenchOutcome bench;
  bench.gpu = made_up_gpu();
  bench.ceilings = {4.5e12, 9e14};
  const MeasuredCeilings read =
      read_ceilings(folder.write("bench.json", bench_json(bench).dump()).string());
  EXPECT_EQ(read.gpu_name, "NVIDIA H200");
  EXPECT_EQ(read.num_sms, bench.gpu.num_sms);
  EXPECT_EQ(read.ceilings.read_bytes_per_s, 4.5e12);
  for (const char* wrong : {"", "{}", "[1]", R"({"gpu": 1, "read_bytes_per_s": 1})"}) {
    EXPECT_THROW(read_ceilings(folder.write("wrong.json", wrong).string()), InvalidArgument);
  }
  EXPECT_THROW(read_ceilings((folder / "none.json").string()), InvalidArgument);
  bench.ceilings.read_bytes_per_s = 0;
  EXPECT_THROW(read_ceilings(folder.write("zero.json", bench_json(bench).dump()).string()),
               InvalidArgument);
}

TEST(TuningReport, NamesWhatIsStaleAndWhetherItIsServed) {
  const TuningReport report = Filled().report();
  const ReportGpu& gpu = h200(report);
  EXPECT_EQ(gpu.today.driver_version, "13.0");
  EXPECT_EQ(labels(winner_of(gpu, kTuned)), "");
  EXPECT_TRUE(winner_of(gpu, kTuned).is_served);
  EXPECT_EQ(labels(winner_of(gpu, kStaleDriver)), "other driver;");
  EXPECT_TRUE(winner_of(gpu, kStaleDriver).is_served);
  EXPECT_EQ(labels(winner_of(gpu, kOlderTemplate)), "older template;");
  EXPECT_FALSE(winner_of(gpu, kOlderTemplate).is_served);
  EXPECT_EQ(labels(winner_of(gpu, kOtherNvrtc)), "other nvrtc;");
  EXPECT_FALSE(winner_of(gpu, kOtherNvrtc).is_served);
}

TEST(TuningReport, ComparesWithThisMachineWhereTheGpuIsHere) {
  ReportScope scope;
  scope.here = {{made_up_gpu().identity(), {"14.0", "88.8", true}}};
  const TuningReport report = Filled().report(scope);
  const ReportGpu& gpu = h200(report);
  EXPECT_TRUE(gpu.today.is_here);
  EXPECT_EQ(labels(winner_of(gpu, kTuned)), "other nvrtc;other driver;");
  EXPECT_EQ(labels(winner_of(gpu, kOtherNvrtc)), "other driver;");
}

TEST(TuningReport, TellsOlderMethodsAndUnfinishedComparisons) {
  const auto store = TuneStore::open_in_memory();
  Winner winner = store_made_up_winner(*store);
  for (const auto& [method, label] :
       {std::pair{kTimingMethod - 1, "older method;"}, std::pair{-kTimingMethod, "partial;"}}) {
    winner.method = method;
    store->put_winner(made_up_gpu(), winner);
    EXPECT_EQ(labels(tuning_report(*store, {}).gpus.at(0).winners.at(0)), label);
  }
}

TEST(TuningReport, ListsProblemsWithoutAWinnerAndWhatServesThem) {
  const TuningReport report = Filled().report();
  std::vector<std::string> missing;
  for (const ReportGap& gap : h200(report).gaps) {
    missing.push_back(gap.problem.text());
    EXPECT_EQ(gap.match, "default") << gap.problem.text();
    EXPECT_FALSE(gap.candidate.empty());
    EXPECT_EQ(gap.tune_command, "attune tune --problem '" + gap.problem.text() + "'");
  }
  std::sort(missing.begin(), missing.end());
  EXPECT_EQ(missing, (std::vector<std::string>{kOtherNvrtc, kAllRejected, kOlderTemplate}));
}

TEST(TuningReport, OfAPresetNamesWhatOfItIsMissing) {
  ReportScope scope;
  scope.gpu = "H200";
  scope.problems = {Problem::parse(kTuned),
                    Problem::parse("decode/b1/q1/kv1-1024/h8x2/d128/contiguous/bf16"),
                    Problem::parse("decode/b1/q1/kv1-4096/h8x2/d256/contiguous/bf16")};
  const TuningReport report = Filled().report(scope);
  ASSERT_EQ(report.gpus.size(), 1u);
  EXPECT_EQ(report.gpus[0].winners.size(), 1u);
  ASSERT_EQ(report.gpus[0].gaps.size(), 2u);
  EXPECT_EQ(report.gpus[0].gaps[0].match, "nearest");
  EXPECT_EQ(report.gpus[0].gaps[1].match, "default");
  EXPECT_TRUE(std::all_of(report.gpus[0].rejections.begin(), report.gpus[0].rejections.end(),
                          [](const auto& one) { return one.problem.text() == kTuned; }));
}

TEST(TuningReport, CountsRejectionsByReasonWhatWasPaidForFirst) {
  const TuningReport report = Filled().report();
  const auto groups = group_rejections(h200(report).rejections);
  ASSERT_GE(groups.size(), 4u);
  EXPECT_NE(groups.front().stage, Stage::kPrune);
  EXPECT_EQ(groups.back().stage, Stage::kPrune);
  std::size_t total = 0;
  for (const RejectionGroup& group : groups) {
    total += group.rows.size();
    for (const std::size_t row : group.rows) {
      EXPECT_EQ(h200(report).rejections[row].record.rejection.reason, group.reason);
    }
  }
  EXPECT_EQ(total, h200(report).rejections.size());
}

TEST(TuningReport, HasRejectionsOfTheLatestTuneAlone) {
  const Filled filled;
  const TuningReport before = filled.report();
  RejectionRecord record = h200(before).rejections.front().record;
  const Problem problem = h200(before).rejections.front().problem;
  const auto details = [&] {
    std::vector<std::string> all;
    const TuningReport report = filled.report();
    for (const StoredRejection& one : h200(report).rejections) {
      if (one.problem == problem && one.record.candidate.family == record.candidate.family) {
        all.push_back(one.record.rejection.detail);
      }
    }
    return all;
  };
  EXPECT_EQ(details(), std::vector<std::string>{record.rejection.detail});
  record.rejection.detail = "by a later compiler";
  filled.store->put_rejections(
      made_up_gpu(), problem,
      toolchain_of(*find_family(record.candidate.family), "sm_90a", "100.0"), std::vector{record});
  EXPECT_EQ(details(), std::vector<std::string>{"by a later compiler"});
}

TEST(TuningReport, WritesTheSameAsJson) {
  const Json json = tuning_report_json(Filled().report());
  ASSERT_EQ(json["gpus"].size(), 2u);
  const Json& gpu =
      json["gpus"][1]["gpu"] == made_up_gpu().identity() ? json["gpus"][1] : json["gpus"][0];
  EXPECT_EQ(gpu["driver"], "13.0");
  EXPECT_EQ(gpu["winners"].size(), 6u);
  EXPECT_EQ(gpu["missing"].size(), 3u);
  EXPECT_GT(gpu["ceilings"]["read_bytes_per_s"], 4e12);
  const Json& winner = gpu["winners"][0];
  EXPECT_GT(winner["measurements"][0]["default_us"], 0);
  EXPECT_GT(winner["measurements"][0]["floor_us"], 0);
  EXPECT_EQ(gpu["rejections"][0]["count"], gpu["rejections"][0]["candidates"].size());
  EXPECT_NE(json.dump().find("window.injected=1"), std::string::npos);
}

TEST(TuningReportPage, EscapesWhatOthersWrote) {
  const std::string page = tuning_report_page(Filled().report(), "1.2.3");
  EXPECT_EQ(page.find("<script>window"), std::string::npos);
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(page.find("<i>"), std::string::npos);
  EXPECT_NE(page.find("&lt;script&gt;window.injected=1&lt;/script&gt;"), std::string::npos);
  EXPECT_NE(page.find("NVIDIA &lt;i&gt;&quot;H100&quot;&lt;/i&gt; &amp; co"), std::string::npos);
}

TEST(TuningReportPage, LoadsNothingAndRunsItsOwnScriptAlone) {
  const TuningReport report = Filled().report();
  const std::string page = tuning_report_page(report, "1.2.3");
  EXPECT_NE(page.find("default-src 'none'; style-src 'nonce-"), std::string::npos);
  EXPECT_EQ(page.find("src=\""), std::string::npos);
  EXPECT_EQ(page.find("<link"), std::string::npos);
  EXPECT_EQ(page.find("{{"), std::string::npos);
  EXPECT_NE(page, tuning_report_page(report, "1.2.3"));  // a nonce is used once
}

TEST(TuningReportPage, KeepsPlaceholdersOfStoredTextsAsTheyAre) {
  const auto store = TuneStore::open_in_memory();
  const DeviceInfo gpu = made_up_gpu("{{script}} {{nonce}}");
  store_made_up_winner(*store, kTuned, gpu);
  const std::string page = tuning_report_page(tuning_report(*store, {}), "1.2.3");
  EXPECT_NE(page.find("{{script}} {{nonce}}"), std::string::npos);
}

TEST(TuningReportPage, HasEveryWinnerGapAndRejectedCandidate) {
  const TuningReport report = Filled().report();
  std::string page = tuning_report_page(report, "1.2.3");
  for (auto at = page.find("<wbr>"); at != std::string::npos; at = page.find("<wbr>", at)) {
    page.erase(at, 5);
  }
  for (const ReportGpu& gpu : report.gpus) {
    for (const ReportWinner& one : gpu.winners) {
      EXPECT_NE(page.find("<code>" + one.winner.problem.text() + "</code>"), std::string::npos);
    }
    for (const ReportGap& gap : gpu.gaps) {
      EXPECT_NE(page.find(escaped(gap.tune_command).markup), std::string::npos);
    }
    for (const StoredRejection& one : gpu.rejections) {
      EXPECT_NE(page.find(one.record.candidate.text()), std::string::npos);
      EXPECT_NE(page.find(escaped(one.record.rejection.detail).markup), std::string::npos);
    }
  }
}

TEST(TuningReportPage, OfAnEmptyCacheSaysWhatToDo) {
  TuningReport report = tuning_report(*TuneStore::open_in_memory(), {});
  report.cache_path = "/some/where/tune.db";
  const std::string page = tuning_report_page(report, "1.2.3");
  EXPECT_NE(page.find("attune tune --preset gemma4-31b --cache /some/where/tune.db"),
            std::string::npos);
  EXPECT_NE(page.find("</html>"), std::string::npos);
}

TEST(TuningReportPage, ShowsWinnersOfAGpuThatThisAttuneDoesNotKnow) {
  const auto store = TuneStore::open_in_memory();
  DeviceInfo gpu = made_up_gpu("NVIDIA Later");
  gpu.arch = "sm_999";
  store_made_up_winner(*store, kTuned, gpu);
  const TuningReport report = tuning_report(*store, {});
  ASSERT_EQ(report.gpus.size(), 1u);
  EXPECT_FALSE(report.gpus[0].ceilings);
  EXPECT_NE(tuning_report_page(report, "1.2.3").find("The floor is not known"), std::string::npos);
}

}  // namespace
}  // namespace attune
