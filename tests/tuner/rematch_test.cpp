#include "tuner/rematch.h"

#include <gtest/gtest.h>

#include <cmath>

namespace attune {
namespace {

// Rounds of four samples each.
std::vector<Timing> rounds_of(const std::vector<std::vector<double>>& rounds) {
  std::vector<Timing> all;
  for (const auto& samples : rounds) all.push_back(summarize(samples));
  return all;
}

std::vector<std::vector<double>> steady(double us, int num_rounds) {
  return std::vector<std::vector<double>>(static_cast<std::size_t>(num_rounds),
                                          std::vector<double>(4, us));
}

TEST(Play, AddsUpRoundsAndWhatWasDroppedInThem) {
  Play play;
  play.rounds[0] = rounds_of({{10, 10, 10, 7}, {10, 11, 10, 10}});
  play.rounds[0][1].conditions.foreign_processes = 1;
  play.rounds[0][0].conditions.sm_clock_mhz = 1980;
  play.rounds[0][1].conditions.sm_clock_mhz = 1700;
  const Timing total = play.total(0);
  EXPECT_EQ(total.num_samples, 7);
  EXPECT_EQ(total.num_dropped, 1);
  EXPECT_DOUBLE_EQ(total.median_us, 10);
  EXPECT_EQ(total.conditions.sm_clock_mhz, 1700);
  EXPECT_TRUE(total.conditions.provisional());
}

TEST(LogRatios, LeaveOutWhatMovesBoth) {
  Play play;
  play.rounds[0] = rounds_of({{10, 10, 10, 10}, {20, 20, 20, 20}});
  play.rounds[1] = rounds_of({{5, 5, 5, 5}, {10, 10, 10, 10}});
  const auto ratios = log_ratios({play}, 0, 1);
  ASSERT_EQ(ratios.size(), 8u);
  for (const double ratio : ratios) EXPECT_NEAR(ratio, std::log(2), 1e-12);
  EXPECT_TRUE(log_ratios({play}, 0, 2).empty());
}

TEST(LogRatios, BeginWithTheLastRematchThatBothPlayed) {
  Play first, second;
  first.rounds[0] = rounds_of(steady(10, 1));
  first.rounds[1] = rounds_of(steady(10, 1));
  second.rounds[0] = rounds_of(steady(30, 1));
  second.rounds[1] = rounds_of(steady(10, 1));
  const auto both = log_ratios({first, second}, 0, 1);
  ASSERT_EQ(both.size(), 8u);
  EXPECT_NEAR(both.front(), std::log(3), 1e-12);
  EXPECT_NEAR(both.back(), 0, 1e-12);
  second.rounds.erase(1);
  EXPECT_EQ(log_ratios({first, second}, 0, 1).size(), 4u);
}

TEST(GainOf, NeedsTenPairsForAProof) {
  const std::vector<double> nine(9, std::log(1.5)), ten(10, std::log(1.5));
  EXPECT_EQ(gain_of({nine}).low, -1);
  EXPECT_NEAR(gain_of({ten}).low, 0.5, 1e-12);
  EXPECT_NEAR(gain_of({ten}).median, 0.5, 1e-12);
  EXPECT_EQ(gain_of({ten, {}}).low, -1);  // a length without pairs
}

TEST(GainOf, AveragesOverTheLengthsBeforeItOrders) {
  // Half as fast at one length, twice as fast at the other.
  const std::vector<double> up(10, std::log(2)), down(10, -std::log(2));
  EXPECT_NEAR(gain_of({up, down}).median, 0, 1e-12);
  // A single contrary pair of ten denies the proof.
  std::vector<double> mixed(10, 0.1);
  mixed[3] = -0.1;
  EXPECT_LT(gain_of({mixed}).low, 0);
  EXPECT_GT(gain_of({mixed}).median, 0);
}

TEST(IsSettled, WhenEveryRatioIsKnownWell) {
  Play play;
  play.rounds[0] = rounds_of(steady(10, 3));
  play.rounds[1] = rounds_of(steady(10.02, 3));
  EXPECT_TRUE(is_settled(play, 0));
  play.rounds[1] = rounds_of(steady(10.02, 2));
  EXPECT_FALSE(is_settled(play, 0)) << "8 pairs are no proof";
  play.rounds[1] = rounds_of({{9, 10, 11, 10}, {11, 9, 10, 10}, {10, 9, 11, 10}});
  EXPECT_FALSE(is_settled(play, 0));
  play.rounds[1] = rounds_of({{19, 20, 21, 20}, {21, 19, 20, 20}, {20, 19, 21, 20}});
  EXPECT_TRUE(is_settled(play, 0)) << "the sign is sure";
}

}  // namespace
}  // namespace attune
