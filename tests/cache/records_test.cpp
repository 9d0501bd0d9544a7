#include "cache/records.h"

#include <set>

#include <gtest/gtest.h>

namespace attune {
namespace {

TEST(Records, StageTextsAreGoldenAndRoundTrip) {
  const std::vector<std::pair<Stage, std::string_view>> golden = {{Stage::kPrune, "prune"},
                                                                  {Stage::kCompile, "compile"},
                                                                  {Stage::kVerify, "verify"},
                                                                  {Stage::kTime, "time"}};
  for (const auto& [stage, text] : golden) {
    EXPECT_EQ(name_of(stage), text);
    EXPECT_EQ(parse_stage(text), stage);
  }
}

TEST(Records, ReasonTextsAreGoldenAndRoundTrip) {
  const std::vector<std::string_view> golden = {
      "unsupported", "smem",   "threads",       "registers",    "spill", "stack",  "ptxas_note",
      "compile",     "launch", "out_of_bounds", "wrong_result", "slow",  "timeout"};
  for (std::size_t i = 0; i < golden.size(); ++i) {
    const auto reason = static_cast<RejectReason>(i);
    EXPECT_EQ(name_of(reason), golden[i]);
    EXPECT_EQ(parse_reject_reason(golden[i]), reason);
  }
  EXPECT_EQ(static_cast<std::size_t>(RejectReason::kTimeout) + 1, golden.size());
}

TEST(Records, RefuseOtherTexts) {
  for (const char* text : {"", "Prune", "prune ", "unknown", "wrong-result"}) {
    EXPECT_FALSE(parse_stage(text)) << text;
    EXPECT_FALSE(parse_reject_reason(text)) << text;
  }
}

}  // namespace
}  // namespace attune
