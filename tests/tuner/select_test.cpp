#include "tuner/select.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace attune {
namespace {

const KernelConfig kSmall{16, 32, 2, 4};
const KernelConfig kLarge{16, 64, 2, 4};

Problem problem_up_to(int kv_max) {
  Problem problem = Problem::parse("decode/b1/q1/kv1/h8x1/d128/contiguous/bf16");
  problem.kv = {1, kv_max};
  return problem;
}

CandidateMeasurements measured(const KernelConfig& config, int split_cap,
                               const std::vector<std::pair<int, double>>& times) {
  CandidateMeasurements one{{"splitkv", config, split_cap}, {}};
  for (const auto& [kv_len, median_us] : times) {
    Measurement point;
    point.kv_len = kv_len;
    point.median_us = median_us;
    one.points.push_back(point);
  }
  return one;
}

TEST(KvPoints, ArePowersOfTwoAndTheEnd) {
  EXPECT_EQ(kv_points({1, 8}), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(kv_points({1, 9}), (std::vector<int>{1, 2, 4, 8, 9}));
  EXPECT_EQ(kv_points({3, 16}), (std::vector<int>{4, 8, 16}));
  EXPECT_EQ(kv_points({1, 1}), (std::vector<int>{1}));
}

TEST(KvPoints, AreTheEndsWhereNoPowerOfTwoIs) {
  EXPECT_EQ(kv_points({5, 7}), (std::vector<int>{5, 7}));
  EXPECT_EQ(kv_points({6, 6}), (std::vector<int>{6}));
}

TEST(KvPoints, DoNotOverflowAtTheLargestLength) {
  EXPECT_EQ(kv_points({1 << 30, 1 << 30}), (std::vector<int>{1 << 30}));
  EXPECT_EQ(kv_points({1, 2147483647}).back(), 2147483647);
}

TEST(SelectWinner, TakesTheLeastWorstRegretNotTheBestMean) {
  // The first one is far better on two points and 30% worse on one.
  const auto selection =
      select_winner(problem_up_to(4), {measured(kSmall, 8, {{1, 100}, {2, 100}, {4, 1300}}),
                                       measured(kLarge, 8, {{1, 120}, {2, 120}, {4, 1000}})});
  ASSERT_TRUE(selection);
  EXPECT_EQ(selection->winner.config, kLarge);
  EXPECT_NEAR(selection->worst_regret, 0.2, 1e-12);
  ASSERT_TRUE(selection->runner_up);
  EXPECT_EQ(selection->runner_up->config, kSmall);
  EXPECT_NEAR(selection->runner_up_regret, 0.3, 1e-12);
}

TEST(SelectWinner, BreaksTiesByFewerSplitsThenLessMemoryThenText) {
  const std::vector<std::pair<int, double>> slow = {{1, 1.005}}, fast = {{1, 1.0}};
  const auto splits =
      select_winner(problem_up_to(1), {measured(kSmall, 8, fast), measured(kSmall, 4, slow)});
  EXPECT_EQ(splits->winner.split_cap, 4);
  EXPECT_NEAR(splits->worst_regret, 0.005, 1e-12);
  const auto memory =
      select_winner(problem_up_to(1), {measured(kLarge, 4, fast), measured(kSmall, 4, slow)});
  EXPECT_EQ(memory->winner.config, kSmall);
  // As much memory as kSmall; "m16n32s2w8" comes behind "m16n32s2w4".
  const KernelConfig same_bytes{16, 64, 1, 4}, later_text{16, 64, 1, 8};
  const auto text = select_winner(problem_up_to(1),
                                  {measured(later_text, 4, fast), measured(same_bytes, 4, slow)});
  EXPECT_EQ(text->winner.config, same_bytes);
}

TEST(SelectWinner, IsIndependentOfTheOrderOfItsInput) {
  std::vector<CandidateMeasurements> all = {
      measured(kSmall, 8, {{1, 1.004}}), measured(kSmall, 4, {{1, 1.009}}),
      measured(kLarge, 2, {{1, 1.02}}), measured(kLarge, 9, {{1, 1.0}})};
  const Candidate first = select_winner(problem_up_to(1), all)->winner;
  std::reverse(all.begin(), all.end());
  EXPECT_EQ(select_winner(problem_up_to(1), all)->winner, first);
  EXPECT_EQ(first.split_cap, 4);
}

TEST(SelectWinner, IgnoresCandidatesWithAMissingPoint) {
  const auto selection =
      select_winner(problem_up_to(2),
                    {measured(kSmall, 8, {{2, 1.0}}), measured(kLarge, 8, {{1, 5.0}, {2, 5.0}})});
  ASSERT_TRUE(selection);
  EXPECT_EQ(selection->winner.config, kLarge);
  EXPECT_NEAR(selection->worst_regret, 4.0, 1e-12);  // but its times count as the best
  EXPECT_FALSE(selection->runner_up);
}

TEST(SelectWinner, IsEmptyWithoutACompleteCandidate) {
  EXPECT_FALSE(select_winner(problem_up_to(2), {}));
  EXPECT_FALSE(select_winner(problem_up_to(2), {measured(kSmall, 8, {{1, 1.0}})}));
  EXPECT_FALSE(select_winner(problem_up_to(1), {measured(kSmall, 8, {{1, 0.0}})}));
}

TEST(SelectWinner, UsesTheLastMeasurementOfAPoint) {
  const auto selection = select_winner(problem_up_to(1), {measured(kSmall, 8, {{1, 1.0}, {1, 3.0}}),
                                                          measured(kLarge, 8, {{1, 2.0}})});
  EXPECT_EQ(selection->winner.config, kLarge);
}

// A measurement whose median lies in us * (1 -+ half).
CandidateMeasurements uncertain(int split_cap, double us, double half) {
  CandidateMeasurements one = measured(kSmall, split_cap, {{1, us}});
  one.points[0].low_us = us * (1 - half);
  one.points[0].high_us = us * (1 + half);
  return one;
}

Rematch with_default(const Candidate& defending, const std::map<Candidate, Gain>& gains,
                     const std::vector<CandidateMeasurements>& finalists) {
  Rematch rematch;
  rematch.defending = defending;
  rematch.gains = gains;
  for (const auto& one : finalists) rematch.finalists.push_back(one.candidate);
  return rematch;
}

TEST(SelectWinner, CountsShortTimesOverTheLongestPoint) {
  // 0.3 us lost at one key is 7% of 4 us, but no more than 0.3 us lost at 1024 keys.
  const auto short_wins = measured(kSmall, 8, {{1, 4.0}, {2, 5.0}});
  const auto long_wins = measured(kLarge, 8, {{1, 4.3}, {2, 4.6}});
  const auto selection = select_winner(problem_up_to(2), {short_wins, long_wins});
  EXPECT_EQ(selection->winner.config, kLarge);
  EXPECT_NEAR(selection->worst_regret, 0.3 / 4.6, 1e-12);
  EXPECT_EQ(counted_us(4, 5), 5);
  EXPECT_EQ(counted_us(4, 150), kNoticedUs);
  EXPECT_EQ(counted_us(40, 150), 40);
}

TEST(SelectWinner, TiesAreNoWiderForTimesThatAreUncertain) {
  const auto winner = [&](double gap, double half) {
    return select_winner(problem_up_to(1),
                         {uncertain(8, 100, half), uncertain(4, 100 * (1 + gap), half)})
        ->winner.split_cap;
  };
  EXPECT_EQ(winner(0.009, 0.0), 4);
  EXPECT_EQ(winner(0.012, 0.015), 8);
}

TEST(SelectWinner, TheDefaultStaysAmongTheTied) {
  const std::vector<CandidateMeasurements> all = {measured(kSmall, 1, {{1, 99.5}}),
                                                  measured(kSmall, 8, {{1, 100}})};
  const Candidate defending = all[1].candidate;
  const Rematch rematch = with_default(defending, {{all[0].candidate, {0.004, 0.005}}}, all);
  EXPECT_EQ(select_winner(problem_up_to(1), all, rematch)->winner, defending);
  EXPECT_EQ(select_winner(problem_up_to(1), all)->winner, all[0].candidate);
}

TEST(SelectWinner, NobodyReplacesTheDefaultWithoutAProof) {
  const std::vector<CandidateMeasurements> all = {measured(kSmall, 1, {{1, 90}}),
                                                  measured(kSmall, 2, {{1, 93}}),
                                                  measured(kSmall, 8, {{1, 100}})};
  const Candidate lucky = all[0].candidate, sure = all[1].candidate, defending = all[2].candidate;
  const auto unproven =
      select_winner(problem_up_to(1), all,
                    with_default(defending, {{lucky, {-0.02, 0.1}}, {sure, {-0.1, 0.07}}}, all));
  EXPECT_EQ(unproven->winner, defending);
  EXPECT_EQ(unproven->over_default.median, 0);
  const auto proven =
      select_winner(problem_up_to(1), all,
                    with_default(defending, {{lucky, {-0.02, 0.1}}, {sure, {0.03, 0.07}}}, all));
  EXPECT_EQ(proven->winner, sure);
  EXPECT_EQ(proven->over_default.low, 0.03);
}

TEST(SelectWinner, OnlyFinalistsWin) {
  const std::vector<CandidateMeasurements> all = {measured(kSmall, 1, {{1, 50}}),
                                                  measured(kSmall, 2, {{1, 100}})};
  Rematch rematch;
  rematch.finalists = {all[1].candidate};
  const auto selection = select_winner(problem_up_to(1), all, rematch);
  EXPECT_EQ(selection->winner, all[1].candidate);
  EXPECT_EQ(selection->worst_regret, 0);
}

TEST(SelectWinner, TheDefaultIsAFinalistWhetherItIsNamedOrNot) {
  const std::vector<CandidateMeasurements> all = {measured(kSmall, 1, {{1, 100}}),
                                                  measured(kSmall, 2, {{1, 125}})};
  Rematch rematch;
  rematch.finalists = {all[1].candidate};
  rematch.defending = all[0].candidate;
  EXPECT_EQ(select_winner(problem_up_to(1), all, rematch)->winner, all[0].candidate);
}

TEST(SelectWinner, WithoutPairsTheDefaultStays) {
  const std::vector<CandidateMeasurements> all = {measured(kSmall, 1, {{1, 50}}),
                                                  measured(kSmall, 8, {{1, 100}})};
  Rematch rematch;
  rematch.defending = all[1].candidate;
  EXPECT_EQ(select_winner(problem_up_to(1), all, rematch)->winner, all[1].candidate);
}

TEST(SelectWinner, IsEmptyWhereTheDefaultLacksATime) {
  const std::vector<CandidateMeasurements> all = {measured(kSmall, 1, {{1, 50}, {2, 50}}),
                                                  measured(kSmall, 8, {{2, 100}})};
  Rematch rematch;
  rematch.defending = all[1].candidate;
  rematch.gains[all[0].candidate] = {-1, 0};
  EXPECT_FALSE(select_winner(problem_up_to(2), all, rematch));
}

}  // namespace
}  // namespace attune
