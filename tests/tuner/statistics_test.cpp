#include "tuner/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "common/error.h"

namespace attune {
namespace {

TEST(DropWild, DropsWhatNoClockCanGive) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const CleanSamples clean = drop_wild({nan, 2, 0, -1, infinity, 2.1});
  EXPECT_EQ(clean.kept, (std::vector<double>{2, 2.1}));
  EXPECT_EQ(clean.num_dropped, 4);
}

TEST(DropWild, DropsTheOneThatIsAlone) {
  const CleanSamples clean = drop_wild({10, 7, 10.1, 9.9, 31, 10});
  EXPECT_EQ(clean.kept, (std::vector<double>{10, 10.1, 9.9, 10}));
  EXPECT_EQ(clean.num_dropped, 2);
}

TEST(DropWild, KeepsSamplesThatSpreadAndWhatIsNearTheMedian) {
  EXPECT_EQ(drop_wild({5, 1, 4, 2, 3}).num_dropped, 0);
  EXPECT_EQ(drop_wild({10, 10, 10, 10.9}).num_dropped, 0);
  EXPECT_EQ(drop_wild({1, 100}).num_dropped, 0);  // which of two is wild?
  EXPECT_EQ(drop_wild({}).num_dropped, 0);
}

TEST(BoundRank, IsThatOfTheSignTest) {
  // P(X <= k) of X ~ Binomial(n, 1/2): the largest k + 1 with P <= risk.
  EXPECT_EQ(bound_rank(9, 0.001), 0);  // 2^-9 > 0.001
  EXPECT_EQ(bound_rank(10, 0.001), 1);
  EXPECT_EQ(bound_rank(5, 0.025), 0);
  EXPECT_EQ(bound_rank(6, 0.025), 1);
  EXPECT_EQ(bound_rank(20, 0.025), 6);  // P(X <= 5) = 0.0207, P(X <= 6) = 0.0577
  EXPECT_EQ(bound_rank(0, 0.1), 0);
  EXPECT_EQ(bound_rank(40, 0.001), 10);
  EXPECT_EQ(bound_rank(4000, 0.001), 1902);  // where 2^-n is no number
}

TEST(MedianInterval, IsTheRangeOfFewSamples) {
  EXPECT_EQ(median_interval({3, 1, 2}, 0.025), (Interval{1, 3}));
  EXPECT_EQ(median_interval({7}, 0.025), (Interval{7, 7}));
  EXPECT_THROW(median_interval({}, 0.025), InvalidArgument);
}

TEST(MedianInterval, HoldsTheMedianAsOftenAsItSays) {
  std::mt19937 random(3);
  std::lognormal_distribution<double> skewed(0, 0.7);  // its median is 1
  int below = 0, above = 0;
  constexpr int kRuns = 20000;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> samples;
    for (int i = 0; i < 20; ++i) samples.push_back(skewed(random));
    const Interval in = median_interval(samples, 0.025);
    if (in.high < 1) ++below;
    if (in.low > 1) ++above;
  }
  EXPECT_NEAR(below, kRuns * 0.0207, 100);
  EXPECT_NEAR(above, kRuns * 0.0207, 100);
}

}  // namespace
}  // namespace attune
