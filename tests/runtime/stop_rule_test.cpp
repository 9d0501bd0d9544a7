#include "runtime/stop_rule.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "runtime/speculation_stats.h"

namespace attune {
namespace {

using Tokens = std::vector<std::int32_t>;

TEST(StopRule, StopTokenIsEmittedAndEndsTheRound) {
  const StopRule rule({.prompt_length = 3, .max_new_tokens = 10, .max_tokens = 100}, {1, 106});
  EXPECT_EQ(rule.emit(Tokens{7, 106, 8}, 1), (Emission{2, StopReason::kStopToken}));
  EXPECT_EQ(rule.emit(Tokens{1}, 1), (Emission{1, StopReason::kStopToken}));
  EXPECT_EQ(rule.emit(Tokens{7, 8, 9}, 1), (Emission{3, StopReason::kNone}));
  EXPECT_EQ(rule.emit(Tokens{}, 1), (Emission{0, StopReason::kNone}));
}

TEST(StopRule, BudgetCutsTheRound) {
  const StopRule rule({.prompt_length = 3, .max_new_tokens = 5, .max_tokens = 100}, {1});
  EXPECT_EQ(rule.emit(Tokens{7, 8, 9}, 3), (Emission{2, StopReason::kMaxNewTokens}));
  EXPECT_EQ(rule.emit(Tokens{7, 8}, 3), (Emission{2, StopReason::kMaxNewTokens}));
  EXPECT_EQ(rule.emit(Tokens{7}, 3), (Emission{1, StopReason::kNone}));
  EXPECT_EQ(rule.emit(Tokens{7, 1}, 3), (Emission{2, StopReason::kStopToken}));
  EXPECT_EQ(rule.emit(Tokens{7, 8, 1}, 3), (Emission{2, StopReason::kMaxNewTokens}));
  EXPECT_EQ(rule.emit(Tokens{7}, 5), (Emission{0, StopReason::kMaxNewTokens}));
}

TEST(StopRule, EndOfTheContextIsABudgetToo) {
  const StopRule rule({.prompt_length = 97, .max_new_tokens = 5, .max_tokens = 100}, {});
  EXPECT_EQ(rule.emit(Tokens{7, 8, 9, 10}, 0), (Emission{3, StopReason::kContextEnd}));
  const StopRule exact({.prompt_length = 95, .max_new_tokens = 5, .max_tokens = 100}, {});
  EXPECT_EQ(exact.emit(Tokens{7, 8, 9, 10, 11, 12}, 0), (Emission{5, StopReason::kMaxNewTokens}));
}

TEST(StopRule, ChainsShrinkToWhatCanBeEmitted) {
  const StopRule rule({.prompt_length = 3, .max_new_tokens = 8, .max_tokens = 100}, {});
  EXPECT_EQ(rule.chain_length(4, 1), 4);
  EXPECT_EQ(rule.chain_length(4, 4), 3);
  EXPECT_EQ(rule.chain_length(4, 7), 0);  // the target's own token is the last
  EXPECT_EQ(rule.chain_length(4, 8), 0);
}

TEST(StopRule, VerifyStepsStayInTheContext) {
  for (int prompt_length = 1; prompt_length < 40; ++prompt_length) {
    const StopRule rule({.prompt_length = prompt_length, .max_new_tokens = 1000, .max_tokens = 40},
                        {});
    for (int num_emitted = 1; num_emitted < 40 - prompt_length; ++num_emitted) {
      const int anchor = prompt_length + num_emitted - 1;
      EXPECT_LT(anchor + rule.chain_length(15, num_emitted), 40);
    }
  }
}

TEST(StopRule, PromptsWithoutRoomAreRefused) {
  EXPECT_NO_THROW(StopRule({.prompt_length = 99, .max_new_tokens = 1, .max_tokens = 100}, {}));
  EXPECT_THROW(StopRule({.prompt_length = 0}, {}), InvalidArgument);
  EXPECT_THROW(StopRule({.prompt_length = 3, .max_new_tokens = 0}, {}), InvalidArgument);
  try {
    StopRule({.prompt_length = 100, .max_new_tokens = 1, .max_tokens = 100}, {});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("prompt_length=100 max_tokens=100"),
              std::string::npos);
  }
}

TEST(SpeculationStats, CountByPositionWhatWasJudged) {
  SpeculationStats stats;
  EXPECT_EQ(stats.mean_emitted(), 0);
  EXPECT_EQ(stats.mean_accepted_length(), 0);
  stats.add_round(3, 3, 4);
  stats.add_round(3, 1, 2);
  stats.add_round(3, 0, 1);
  stats.add_round(1, 1, 1);  // a stop token was accepted
  stats.add_round(0, 0, 1);  // nothing was proposed
  EXPECT_EQ(stats.num_rounds(), 5);
  EXPECT_EQ(stats.num_accepted(), 5);
  EXPECT_EQ(stats.num_emitted(), 9);
  EXPECT_DOUBLE_EQ(stats.mean_emitted(), 9 / 5.0);
  EXPECT_DOUBLE_EQ(stats.mean_accepted_length(), 2);
  EXPECT_EQ(stats.acceptance_by_position(), (std::vector<double>{3 / 4.0, 1 / 2.0, 1}));
}

}  // namespace
}  // namespace attune
