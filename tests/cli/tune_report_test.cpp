#include "cli/tune_report.h"

#include <gtest/gtest.h>

#include "cli/commands.h"
#include "tests/cli/made_up_results.h"

namespace attune {
namespace {

TuneOutcome made_up_outcome() {
  TuneOutcome outcome;
  outcome.device = made_up_gpu();
  outcome.cache_path = "tune.db";
  outcome.report.num_problems = 1;
  outcome.report.num_tuned = 1;
  outcome.report.num_candidates = 96;
  outcome.report.num_pruned = 41;
  outcome.report.pruned_by_reason = {{"smem", 29}, {"registers", 12}};
  outcome.report.num_rejected = 3;
  outcome.report.rejected_by_reason = {{"spill", 2}, {"wrong_result", 1}};
  outcome.report.num_timed = 52;
  return outcome;
}

TEST(TuneReportText, EndsWithTheCountsAndWhatChangedWhere) {
  const std::string text = tune_text(made_up_outcome());
  EXPECT_NE(text.find("96 candidates: 41 pruned (smem 29, registers 12), 3 rejected (spill 2, "
                      "wrong result 1), 52 timed\n"),
            std::string::npos)
      << text;
  EXPECT_TRUE(text.ends_with("stored 1 winner for NVIDIA H200 (sm_90a) in tune.db\n")) << text;
}

TEST(TuneReportText, RanksTheCandidatesOfOneProblem) {
  const auto store = TuneStore::open_in_memory();
  TuneOutcome outcome = made_up_outcome();
  outcome.report.winners = {store_made_up_winner(*store)};
  outcome.problem = Problem::parse(kTuned);
  outcome.candidates = candidate_rows(Scene::of(*store, outcome.device, outcome.problem, kNvrtc));
  const std::string text = tune_text(outcome);
  EXPECT_TRUE(text.starts_with("rank  family   config"));
  EXPECT_NE(text.find("5.00  0.11"), std::string::npos) << text;
  EXPECT_NE(text.find(" 21.0%  "), std::string::npos) << text;  // over the default
  const Json json = tune_json(outcome);
  EXPECT_EQ(json["state"], "tuned");
  EXPECT_EQ(json["winners"][0]["problem"], kTuned);
  EXPECT_EQ(json["pruned"]["by_reason"]["smem"], 29);
  EXPECT_GE(json["ranking"].size(), 3U);
}

TEST(TuneReportText, SaysThatAWarmRunDidNothing) {
  TuneOutcome outcome = made_up_outcome();
  outcome.report = {};
  outcome.report.num_problems = outcome.report.num_cached = 55;
  const std::string text = tune_text(outcome);
  EXPECT_NE(text.find("all 55 problems already tuned: nothing was compiled or timed\n"),
            std::string::npos);
  EXPECT_TRUE(text.ends_with("stored 0 winners, kept 55 for NVIDIA H200 (sm_90a) in tune.db\n"));
}

TEST(TuneReportText, SaysThatNothingWasTimedWithoutAGpu) {
  TuneOutcome outcome = made_up_outcome();
  outcome.compiled_only = true;
  outcome.num_binaries = outcome.report.num_compiled = 7;
  const std::string text = tune_text(outcome);
  EXPECT_TRUE(text.starts_with("compiled for sm_90a only, nothing is verified or timed"));
  EXPECT_TRUE(text.ends_with(
      "compiled 7 binaries; 7 binaries for sm_90a stored as 'compiled' in tune.db\n"))
      << text;
  EXPECT_EQ(tune_json(outcome)["state"], "compiled");
  EXPECT_EQ(tune_json(outcome)["gpu"], nullptr);
}

TEST(TuneExitCode, TellsInterruptionBudgetAndFailureApart) {
  TuneReport report;
  EXPECT_EQ(tune_exit_code(report, 130), kExitDone);
  report.failures = {"p: no candidate is right"};
  EXPECT_EQ(tune_exit_code(report, 130), kExitFailed);
  report.complete = false;
  EXPECT_EQ(tune_exit_code(report, 130), kExitPartial);
  report.interrupted = true;
  EXPECT_EQ(tune_exit_code(report, 130), 130);
}

}  // namespace
}  // namespace attune
