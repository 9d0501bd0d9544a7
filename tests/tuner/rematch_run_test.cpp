#include "tuner/rematch_run.h"

#include <gtest/gtest.h>

namespace attune {
namespace {

TEST(IsConfirmed, NearAnyEarlierNumber) {
  EXPECT_TRUE(is_confirmed({{0, 10.0}, {1, 9.5}}, {{{0, 10.0}, {1, 9.5}}}, 0.1));
  EXPECT_FALSE(is_confirmed({{0, 10.0}, {1, 9.8}}, {{{0, 10.0}, {1, 9.5}}}, 0.1));
  EXPECT_TRUE(
      is_confirmed({{0, 10.0}, {1, 9.8}}, {{{0, 10.0}, {1, 9.5}}, {{0, 10.0}, {1, 9.8}}}, 0.1));
  EXPECT_FALSE(is_confirmed({{0, 10.0}, {1, 9.5}}, {{{0, 10.0}}}, 0.1)) << "no other number";
}

TEST(IsConfirmed, WhatMovesAllDoesNotCount) {
  const std::map<std::size_t, double> before = {{0, 10}, {1, 9}, {2, 8}};
  EXPECT_TRUE(is_confirmed({{0, 10.5}, {1, 9.45}, {2, 8.4}}, {before}, 0.01));
  // One of them is slow besides: of three, and of two.
  EXPECT_FALSE(is_confirmed({{0, 10.5}, {1, 9.45}, {2, 8.6}}, {before}, 0.1));
  EXPECT_FALSE(is_confirmed({{0, 10.5}, {1, 9.7}}, {before}, 0.1));
}

TEST(IsConfirmed, AGraphIsSlowByChanceButNeverFast) {
  // The first of three was slow before; of four, the first two are slow now.
  EXPECT_FALSE(is_confirmed({{0, 10}, {1, 9.5}, {2, 8}}, {{{0, 10.6}, {1, 9.5}, {2, 8}}}, 0.1));
  EXPECT_FALSE(is_confirmed({{0, 10.6}, {1, 9.8}, {2, 8}, {3, 7}},
                            {{{0, 10}, {1, 9.3}, {2, 8}, {3, 7}}}, 0.1));
  EXPECT_TRUE(
      is_confirmed({{0, 10}, {1, 9}, {2, 8}, {3, 7}}, {{{0, 10}, {1, 9}, {2, 8}, {3, 7}}}, 0.1));
  EXPECT_FALSE(is_confirmed({{0, 10.6}}, {{{0, 10}}}, 0.1)) << "alone it moved nobody else";
}

// Two candidates at two lengths; the second fails at measurement `fails_at`.
class TwoPlayers : public testing::Test {
 protected:
  TwoPlayers() {
    for (int split_cap : {1, 2}) {
      request_.candidates.push_back({"splitkv", {16, 32, 2, 4}, split_cap});
    }
    table_.times.resize(2);
    request_.stop = [this] { return num_measured_ >= stops_at_; };
    request_.interrupted = [] { return false; };
    request_.measure = [this](const Candidate& one, int, const TimerOptions& options) {
      ++num_measured_;
      if (one.split_cap == 2 && num_measured_ >= fails_at_) return std::optional<Timing>();
      num_graphs_ += one.split_cap == 2 && options.new_graph;
      const double us = one.split_cap == 2 ? us_of_graph_(num_graphs_) : 10;
      return std::optional(
          summarize(std::vector<double>(static_cast<std::size_t>(options.min_samples), us)));
    };
  }

  TimeRequest request_;
  TimeTable table_;
  RematchRun run_{request_, &table_};
  int num_measured_ = 0, fails_at_ = 1000, stops_at_ = 1000, num_graphs_ = 0;
  std::function<double(int)> us_of_graph_ = [](int) { return 10; };
};

TEST_F(TwoPlayers, PlayUntilTwoGraphsAgree) {
  const auto num_plays = [&](std::function<double(int)> us_of_graph) {
    us_of_graph_ = std::move(us_of_graph);
    num_graphs_ = 0;
    table_.times[0][1024] = table_.times[1][1024] = summarize({9.5, 9.5, 9.5});
    RematchRun run(request_, &table_);
    EXPECT_TRUE(run.play({0, 1}, {1024}, 0));
    return num_graphs_;
  };
  // The one that keeps its time of 10 us moved from 9.5 as well.
  EXPECT_EQ(num_plays([](int) { return 10; }), 1);
  EXPECT_EQ(num_plays([](int) { return 10.6; }), 2) << "the second graph agrees with the first";
  EXPECT_EQ(num_plays([](int graph) { return graph == 1 ? 10.6 : 10; }), 2);
  EXPECT_EQ(num_plays([](int graph) { return 10 + graph; }), 3) << "the last one counts";
  EXPECT_EQ(table_.times[1].at(1024).median_us, 13);
}

TEST_F(TwoPlayers, AProofEndsWhenOneFails) {
  fails_at_ = 2;
  EXPECT_TRUE(run_.prove(0, 1, {512, 1024}, request_.stop));
  EXPECT_EQ(num_measured_, 2) << "nobody plays alone";
  EXPECT_EQ(table_.failed.count(1), 1u);
  EXPECT_EQ(run_.gain(0, 1, {512, 1024}).low, -1);
}

TEST_F(TwoPlayers, AProofThatIsStoppedLeavesTheTable) {
  ASSERT_TRUE(run_.play({0, 1}, {512, 1024}, 0));
  us_of_graph_ = [](int) { return 11; };
  stops_at_ = num_measured_ + 2 * request_.plan.max_rounds + 3;  // at the second length
  EXPECT_FALSE(run_.prove(0, 1, {512, 1024}, request_.stop));
  EXPECT_EQ(table_.times[1].at(512).median_us, 10);
  EXPECT_EQ(table_.times[1].at(512).num_samples,
            request_.plan.min_rounds * request_.plan.round_samples);
  EXPECT_TRUE(run_.has_played(1, {512, 1024}));
}

TEST_F(TwoPlayers, WhoFailedHasNotPlayed) {
  fails_at_ = 2;
  ASSERT_TRUE(run_.play({0, 1}, {1024}, 0));
  EXPECT_TRUE(run_.has_played(0, {1024}));
  EXPECT_FALSE(run_.has_played(1, {1024}));
}

}  // namespace
}  // namespace attune
