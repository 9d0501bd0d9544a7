#include "tuner/time_stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tuner/select.h"

namespace attune {
namespace {

const Problem kProblem = Problem::parse("decode/b1/q1/kv1-1024/h8x1/d128/contiguous/bf16");

Candidate candidate(int split_cap) { return {"splitkv", {16, 32, 2, 4}, split_cap}; }

// Times candidates by a function of the test and remembers who was measured where.
class TimeCandidates : public testing::Test {
 protected:
  TimeCandidates() {
    request_.problem = kProblem;
    request_.ranges = {{1, 1024}};
    request_.defaults = {candidate(1)};
    request_.stop = [] { return false; };
    request_.interrupted = [] { return false; };
    request_.measure = [this](const Candidate& one, int kv_len, const TimerOptions& options) {
      log_.emplace_back(one.split_cap, kv_len);
      const double time_us = time_us_(one, kv_len);
      std::vector<double> samples(static_cast<std::size_t>(options.min_samples), time_us);
      if (options.abandon_above_us > 0 && time_us > options.abandon_above_us) samples.resize(1);
      return std::optional(summarize(samples));
    };
  }
  void have_candidates(int count) {
    for (int i = 1; i <= count; ++i) request_.candidates.push_back(candidate(i));
  }
  long count(int split_cap, int kv_len) const {
    return std::count(log_.begin(), log_.end(), std::pair(split_cap, kv_len));
  }
  std::optional<Selection> winner_of(const TimedRange& range) const {
    Problem problem = kProblem;
    problem.kv = range.range;
    return select_winner(problem, measurements_of(range, "13.0"), range.rematch);
  }

  TimeRequest request_;
  std::function<double(const Candidate&, int)> time_us_ = [](const Candidate&, int) { return 1.0; };
  std::vector<std::pair<int, int>> log_;
};

TEST_F(TimeCandidates, MeasuresFromTheLongestLengthDown) {
  have_candidates(1);
  time_candidates(request_);
  EXPECT_EQ(log_.front().second, 1024);
  EXPECT_TRUE(std::is_sorted(log_.begin(), log_.end(),
                             [](const auto& a, const auto& b) { return a.second > b.second; }));
  EXPECT_EQ(log_.size(), 11u);
}

TEST_F(TimeCandidates, DropsAPoorCandidateFromTheOtherPoints) {
  have_candidates(3);
  time_us_ = [](const Candidate& one, int) { return one.split_cap == 3 ? 1.6 : 1.0; };
  const auto ranges = time_candidates(request_);
  EXPECT_EQ(count(3, 1024), 1);
  EXPECT_EQ(count(3, 512), 0);
  EXPECT_EQ(ranges[0].timed[2].points.size(), 1u);
  EXPECT_EQ(winner_of(ranges[0])->winner, candidate(1));
}

TEST_F(TimeCandidates, ReportsProgressUpToItsTotal) {
  have_candidates(3);
  time_us_ = [](const Candidate& one, int) { return one.split_cap == 3 ? 1.6 : 1.0; };
  std::vector<std::pair<std::size_t, std::size_t>> seen;
  request_.progress = [&](const Candidate&, std::size_t done, std::size_t total) {
    seen.emplace_back(done, total);
  };
  time_candidates(request_);
  EXPECT_EQ(seen.front(), (std::pair<std::size_t, std::size_t>(1, 33)));
  EXPECT_EQ(seen.back(), (std::pair<std::size_t, std::size_t>(23, 23)));
}

TEST_F(TimeCandidates, NeverDropsTheDefault) {
  have_candidates(3);
  time_us_ = [](const Candidate& one, int) { return one.split_cap == 1 ? 9.0 : 1.0; };
  const auto ranges = time_candidates(request_);
  EXPECT_EQ(ranges[0].timed[0].candidate, candidate(1));
  EXPECT_EQ(ranges[0].timed[0].points.size(), 11u);
}

TEST_F(TimeCandidates, DoesNotAskForAFailedCandidateAgainInAnotherRange) {
  have_candidates(3);
  request_.ranges = {{1, 1024}, {1, 64}};
  request_.defaults = {candidate(1), candidate(1)};
  const auto measure = request_.measure;
  request_.measure = [=](const Candidate& one, int kv_len, const TimerOptions& options) {
    const auto timing = measure(one, kv_len, options);
    return one == candidate(3) && kv_len == 1024 ? std::nullopt : timing;
  };
  const auto ranges = time_candidates(request_);
  EXPECT_EQ(count(3, 64), 0);
  EXPECT_EQ(ranges[1].timed.size(), 2u);
}

TEST_F(TimeCandidates, KeepsTheWinnerOfAShortRangeThatIsPoorAtLongLengths) {
  have_candidates(3);
  request_.ranges = {{1, 1024}, {1, 64}};
  request_.defaults = {candidate(1), candidate(1)};
  time_us_ = [](const Candidate& one, int kv_len) {
    const bool good = one.split_cap == 3 ? kv_len <= 64 : kv_len > 64;
    return good ? 1.0 : 2.0;
  };
  const auto ranges = time_candidates(request_);
  EXPECT_EQ(winner_of(ranges[1])->winner, candidate(3));
  EXPECT_NE(winner_of(ranges[0])->winner, candidate(3));
}

TEST_F(TimeCandidates, KeepsADefaultThatIsClearlyBestAfterOthersPlayedElsewhere) {
  have_candidates(3);
  request_.ranges = {{1, 1024}, {1, 64}};
  request_.defaults = {candidate(2), candidate(1)};
  time_us_ = [](const Candidate& one, int kv_len) {
    if (one.split_cap == 1) return kv_len <= 64 ? 1.0 : 3.0;
    return kv_len <= 64 ? 1.5 : 1.0;
  };
  const auto ranges = time_candidates(request_);
  EXPECT_NE(winner_of(ranges[0])->winner, candidate(1));
  EXPECT_EQ(winner_of(ranges[1])->winner, candidate(1)) << "2 and 3 played in the first range";
  EXPECT_EQ(winner_of(ranges[1])->worst_regret, 0);
}

TEST_F(TimeCandidates, AClearLeaderPlaysTheSecond) {
  have_candidates(2);
  request_.ranges = {{1024, 1024}};
  time_us_ = [](const Candidate& one, int) { return one.split_cap == 1 ? 1.0 : 1.05; };
  const auto ranges = time_candidates(request_);
  EXPECT_EQ(winner_of(ranges[0])->winner, candidate(1));
  EXPECT_EQ(count(1, 1024), 1 + request_.plan.min_rounds);
  EXPECT_EQ(count(2, 1024), 1 + request_.plan.min_rounds);
}

TEST_F(TimeCandidates, DoesNotDropEveryoneWhenAllArePoorSomewhere) {
  have_candidates(2);
  time_us_ = [](const Candidate& one, int kv_len) {
    return (one.split_cap == 1) == (kv_len > 100) ? 1.0 : 3.0;
  };
  request_.defaults = {candidate(7)};  // not among the admitted ones
  ASSERT_TRUE(winner_of(time_candidates(request_)[0]));
}

TEST_F(TimeCandidates, PlaysTheRematchInTurn) {
  have_candidates(2);
  request_.ranges = {{1024, 1024}};
  time_candidates(request_);
  const std::vector<std::pair<int, int>> expected = {{1, 1024}, {2, 1024},  // first pass
                                                     {1, 1024}, {2, 1024},  // rounds
                                                     {1, 1024}, {2, 1024},  //
                                                     {1, 1024}, {2, 1024},  //
                                                     {1, 1024}, {2, 1024}};
  EXPECT_EQ(log_, expected);
}

TEST_F(TimeCandidates, ReplacesALuckyFirstNumber) {
  have_candidates(3);
  request_.ranges = {{1024, 1024}};
  std::map<int, int> seen;
  time_us_ = [&](const Candidate& one, int) {
    const bool lucky = one.split_cap == 2 && seen[one.split_cap]++ == 0;
    return lucky ? 0.7 : one.split_cap == 3 ? 0.9 : 1.0;
  };
  const auto ranges = time_candidates(request_);
  EXPECT_EQ(winner_of(ranges[0])->winner, candidate(3));
}

TEST_F(TimeCandidates, RematchesAWinnerThatWasNoFinalist) {
  have_candidates(5);
  request_.ranges = {{1024, 1024}};
  std::map<int, int> seen;
  // 1 to 4 lead in the first pass only; 5 was fourth then and is best in truth.
  time_us_ = [&](const Candidate& one, int) {
    const bool first = seen[one.split_cap]++ == 0;
    if (one.split_cap == 5) return 1.0;
    return first ? 0.9 : 1.2;
  };
  const auto ranges = time_candidates(request_);
  EXPECT_EQ(winner_of(ranges[0])->winner, candidate(5));
  EXPECT_GT(count(5, 1024), 1);
}

TEST_F(TimeCandidates, LeavesOutACandidateThatCannotBeTimed) {
  have_candidates(3);
  const auto measure = request_.measure;
  request_.measure = [&](const Candidate& one, int kv_len, const TimerOptions& options) {
    if (one.split_cap == 1 && kv_len == 256) return std::optional<Timing>();
    return measure(one, kv_len, options);
  };
  const auto ranges = time_candidates(request_);
  EXPECT_EQ(count(1, 128), 0);
  EXPECT_EQ(winner_of(ranges[0])->winner, candidate(2));
  for (const TimedCandidate& one : ranges[0].timed) EXPECT_NE(one.candidate, candidate(1));
}

TEST_F(TimeCandidates, MeasuresTheLengthsBeyondAWindowOnce) {
  request_.problem = Problem::parse("decode/b1/q1/kv1-131072/h8x1/d128/w512/ring/bf16");
  request_.ranges = {{1, 131072}};
  have_candidates(1);
  const auto ranges = time_candidates(request_);
  EXPECT_EQ(ranges[0].timed[0].points.size(), 18u);
  EXPECT_EQ(log_.size(), 11u);  // 1 to 1024
}

TEST_F(TimeCandidates, FinishesTheLeaderWhenTheBudgetEnds) {
  have_candidates(4);
  request_.stop = [&] { return log_.size() >= 4; };
  time_us_ = [](const Candidate& one, int) { return one.split_cap == 3 ? 0.5 : 1.0; };
  const auto ranges = time_candidates(request_);
  EXPECT_FALSE(ranges[0].complete);
  ASSERT_TRUE(winner_of(ranges[0]));
  EXPECT_EQ(winner_of(ranges[0])->winner, candidate(3));
  EXPECT_EQ(winner_of(ranges[0])->runner_up, candidate(1));  // the default, to compare with
  EXPECT_EQ(count(2, 512), 0);
}

TEST_F(TimeCandidates, MeasuresNothingMoreWhenInterrupted) {
  have_candidates(4);
  request_.stop = request_.interrupted = [&] { return log_.size() >= 4; };
  const auto ranges = time_candidates(request_);
  EXPECT_FALSE(ranges[0].complete);
  EXPECT_EQ(log_.size(), 4u);
  EXPECT_FALSE(winner_of(ranges[0]));
}

TEST_F(TimeCandidates, IsIncompleteWhenStoppedInTheRematch) {
  have_candidates(2);
  request_.stop = [&] { return log_.size() >= 24; };  // 22 in the first pass
  const auto ranges = time_candidates(request_);
  EXPECT_FALSE(ranges[0].complete);
  EXPECT_TRUE(winner_of(ranges[0]));
}

TEST_F(TimeCandidates, ALuckySampleLosesTheRematch) {
  have_candidates(3);
  request_.ranges = {{1024, 1024}};
  std::map<int, int> seen;
  // 30% too good, once, wherever that is.
  for (int lucky_sample = 0; lucky_sample < 12; ++lucky_sample) {
    int next = 0;
    request_.measure = [&](const Candidate& one, int, const TimerOptions& options) {
      std::vector<double> samples(static_cast<std::size_t>(options.min_samples), 10.0);
      for (double& us : samples) {
        if (one.split_cap == 2 && next++ == lucky_sample) us = 7.0;
      }
      return std::optional(summarize(samples));
    };
    const auto ranges = time_candidates(request_);
    EXPECT_EQ(winner_of(ranges[0])->winner, candidate(1)) << lucky_sample;
    int dropped = 0;
    for (const TimedCandidate& one : ranges[0].timed) dropped += one.points[0].second.num_dropped;
    EXPECT_EQ(dropped, lucky_sample < 3 ? 0 : 1) << "first numbers are replaced";
  }
}

TEST_F(TimeCandidates, TakesTheFirstPassFromWhatIsKnown) {
  have_candidates(4);
  request_.ranges = {{1024, 1024}};
  time_us_ = [](const Candidate& one, int) { return one.split_cap == 3 ? 0.8 : 1.0; };
  request_.known = [](const Candidate& one, int) {
    const double us = one.split_cap == 4 ? 2.0 : 1.0;
    return one.split_cap == 3 ? std::nullopt : std::optional(summarize({us, us, us}));
  };
  const auto ranges = time_candidates(request_);
  EXPECT_EQ(count(4, 1024), 0) << "known to be poor";
  EXPECT_EQ(count(3, 1024), 1 + request_.plan.min_rounds) << "not known";
  EXPECT_EQ(count(1, 1024), request_.plan.min_rounds) << "a finalist";
  EXPECT_EQ(winner_of(ranges[0])->winner, candidate(3));
}

TEST_F(TimeCandidates, PlaysMoreRoundsWhileTimesSpread) {
  have_candidates(2);
  request_.ranges = {{1024, 1024}};
  int next = 0;
  time_us_ = [&](const Candidate&, int) { return 10.0 + 0.06 * (next++ % 3); };
  time_candidates(request_);
  EXPECT_EQ(count(2, 1024), 1 + request_.plan.max_rounds);
}

TEST_F(TimeCandidates, ALeaderWithoutAProofPlaysTheDefaultAgain) {
  have_candidates(2);
  request_.ranges = {{1024, 1024}};
  // 3% faster than the default, but 2 of the first 16 pairs of the rematch are 1% slower.
  int next = 0;
  request_.measure = [&](const Candidate& one, int kv_len, const TimerOptions& options) {
    log_.emplace_back(one.split_cap, kv_len);
    std::vector<double> samples(static_cast<std::size_t>(options.min_samples), 10.0);
    for (double& us : samples) {
      if (one.split_cap == 2) us = next == 8 || next == 13 ? 10.1 : 9.7;
      if (one.split_cap == 2) ++next;
    }
    return std::optional(summarize(samples));
  };
  EXPECT_EQ(winner_of(time_candidates(request_)[0])->winner, candidate(2));
  const int rounds = request_.plan.min_rounds + request_.plan.max_rounds;
  EXPECT_EQ(count(2, 1024), 1 + rounds);
  EXPECT_EQ(count(1, 1024), 1 + rounds);
  next = 0;
  request_.plan.plays_again = false;
  EXPECT_EQ(winner_of(time_candidates(request_)[0])->winner, candidate(1));
}

TEST_F(TimeCandidates, PlaysAgainWithNewGraphsWhereTheNumberIsNotTheFirstOne) {
  have_candidates(2);
  request_.ranges = {{1024, 1024}};
  // The second graph of the better one is a slow one.
  std::map<int, int> graphs;
  request_.measure = [&](const Candidate& one, int kv_len, const TimerOptions& options) {
    log_.emplace_back(one.split_cap, kv_len);
    int& graph = graphs[one.split_cap];
    if (options.new_graph || graph == 0) ++graph;
    const double us = one.split_cap == 1 ? 10.0 : graph == 2 ? 10.6 : 9.5;
    return std::optional(
        summarize(std::vector<double>(static_cast<std::size_t>(options.min_samples), us)));
  };
  EXPECT_EQ(winner_of(time_candidates(request_)[0])->winner, candidate(2));
  // Two plays, and one for the proof, which the slow graph's pairs deny.
  EXPECT_EQ(count(2, 1024), 1 + 2 * request_.plan.min_rounds + request_.plan.max_rounds);
  EXPECT_EQ(graphs[1], 4) << "all have new ones";
  graphs.clear();
  request_.plan.plays_again = false;
  EXPECT_EQ(winner_of(time_candidates(request_)[0])->winner, candidate(1));
}

// The samples of the default are 10 us, those of candidate 2 at `us` of their number.
void have_two(TimeRequest* request, std::function<double(int)> us) {
  request->measure = [=, next = 0](const Candidate& one, int, const TimerOptions& options) mutable {
    std::vector<double> samples(static_cast<std::size_t>(options.min_samples), 10.0);
    for (double& sample : samples) {
      if (one.split_cap == 2) sample = us(next++);
    }
    return std::optional(summarize(samples));
  };
}

TEST_F(TimeCandidates, TheDefaultDefendsWhereTheBudgetEndsInTheProof) {
  have_candidates(2);
  request_.ranges = {{1024, 1024}};
  // 2% better with 2 contrary pairs in the rematch, which is 19 samples long, worse in the proof.
  for (const int last : {20, 24, 40}) {
    int polled = 0;
    have_two(&request_, [](int next) {
      return next >= 19 ? 10.3 : next == 8 || next == 13 ? 10.1 : 9.8;
    });
    request_.stop = [&] { return polled++ >= last; };
    const auto ranges = time_candidates(request_);
    EXPECT_EQ(ranges[0].complete, last == 40) << last;
    EXPECT_EQ(winner_of(ranges[0])->winner, candidate(1)) << last;
  }
}

TEST_F(TimeCandidates, TheDefaultDefendsWhereTheBudgetEndsInTheRematch) {
  have_candidates(2);
  request_.ranges = {{1024, 1024}};
  have_two(&request_, [](int next) { return next % 2 == 0 ? 9.7 : 10.1; });
  int polled = 0;
  request_.stop = [&] { return polled++ >= 6; };
  const auto ranges = time_candidates(request_);
  EXPECT_FALSE(ranges[0].complete);
  EXPECT_EQ(winner_of(ranges[0])->winner, candidate(1)) << "too few pairs";
}

TEST_F(TimeCandidates, ALeaderIsFoundForARangeThatIsNotTimedYet) {
  have_candidates(4);
  request_.ranges = {{512, 512}, {1024, 1024}};
  request_.defaults = {candidate(1), candidate(2)};
  request_.stop = [&] { return log_.size() >= 4; };  // all at 1024
  time_us_ = [](const Candidate& one, int) { return one.split_cap == 3 ? 0.6 : 1.0; };
  const auto ranges = time_candidates(request_);
  EXPECT_FALSE(ranges[0].complete);
  EXPECT_EQ(winner_of(ranges[0])->winner, candidate(3));
}

TEST_F(TimeCandidates, TheNextLeaderIsTriedWhereOneFailsInTheEnd) {
  have_candidates(4);
  request_.ranges = {{512, 1024}};
  request_.stop = [&] { return log_.size() >= 4; };
  time_us_ = [](const Candidate& one, int) {
    return one.split_cap == 3 ? 0.6 : one.split_cap == 4 ? 0.7 : 1.0;
  };
  const auto measure = request_.measure;
  request_.measure = [&](const Candidate& one, int kv_len, const TimerOptions& options) {
    const auto timing = measure(one, kv_len, options);
    return one.split_cap == 3 && kv_len == 512 ? std::nullopt : timing;
  };
  EXPECT_EQ(winner_of(time_candidates(request_)[0])->winner, candidate(4));
}

TEST_F(TimeCandidates, TheNumbersOfACutTuneAreThoseOfItsLastPlay) {
  have_candidates(2);
  request_.ranges = {{1024, 1024}};
  // The default's earlier number is of another day, when all were faster.
  request_.known = [](const Candidate& one, int) {
    return one.split_cap == 1 ? std::optional(summarize({0.6, 0.6, 0.6})) : std::nullopt;
  };
  request_.stop = [&] { return log_.size() >= 1; };
  time_us_ = [](const Candidate& one, int) { return one.split_cap == 2 ? 0.5 : 1.0; };
  const auto ranges = time_candidates(request_);
  EXPECT_EQ(winner_of(ranges[0])->winner, candidate(2));
  EXPECT_EQ(ranges[0].timed[0].points[0].second.median_us, 1.0);
}

TEST_F(TimeCandidates, AnInterruptedTuneWithoutADefaultHasNoChoice) {
  have_candidates(2);
  request_.ranges = {{1024, 1024}};
  request_.defaults = {candidate(7)};
  request_.stop = request_.interrupted = [&] { return log_.size() == 2; };
  EXPECT_FALSE(time_candidates(request_)[0].has_choice());
  log_.clear();
  request_.interrupted = [] { return false; };
  EXPECT_TRUE(time_candidates(request_)[0].has_choice()) << "there is a leader to the end";
}

TEST_F(TimeCandidates, WithoutAllTimesOfTheDefaultNobodyWins) {
  have_candidates(2);
  request_.ranges = {{512, 1024}};
  request_.known = [](const Candidate& one, int) {
    return one.split_cap == 2 ? std::optional(summarize({12, 12, 12})) : std::nullopt;
  };
  request_.stop = request_.interrupted = [&] { return log_.size() == 1; };
  EXPECT_FALSE(winner_of(time_candidates(request_)[0]));
}

TEST_F(TimeCandidates, AnInterruptionIsNotACandidatesFault) {
  have_candidates(2);
  request_.ranges = {{1024, 1024}};
  const auto measure = request_.measure;
  bool interrupted = false;
  request_.stop = request_.interrupted = request_.dropped = [&] { return interrupted; };
  // The default is being measured, in the first pass, in the rematch, and then the last one is.
  for (const std::size_t at : {std::size_t{0}, std::size_t{2}, std::size_t{1}}) {
    interrupted = false;
    log_.clear();
    request_.measure = [&](const Candidate& one, int kv_len, const TimerOptions& options) {
      interrupted = log_.size() == at;
      const auto timing = measure(one, kv_len, options);
      return interrupted ? std::nullopt : timing;
    };
    const auto ranges = time_candidates(request_);
    EXPECT_FALSE(ranges[0].complete) << at;
    EXPECT_EQ(ranges[0].rematch.defending, candidate(1)) << at;
  }
}

TEST_F(TimeCandidates, ALeaderThatPlayedElsewhereIsProvenAgainstThisDefault) {
  have_candidates(8);
  request_.problem = Problem::parse("decode/b1/q1/kv1-2048/h8x1/d128/contiguous/bf16");
  request_.ranges = {{1024, 2048}, {1024, 1024}};
  request_.defaults = {candidate(1), candidate(8)};
  // 4 looks poor at 1024 at first and plays in the first range alone.
  std::map<int, int> seen;
  time_us_ = [&](const Candidate& one, int kv_len) {
    if (kv_len == 2048) return one.split_cap == 4 ? 100.0 : 110.0 + one.split_cap;
    if (one.split_cap == 4) return seen[4]++ == 0 ? 108.0 : 95.0;
    return one.split_cap == 8 ? 100.0 : 103.0 + one.split_cap;
  };
  const auto ranges = time_candidates(request_);
  Problem problem = request_.problem;
  problem.kv = ranges[1].range;
  const auto selection =
      select_winner(problem, measurements_of(ranges[1], "13.0"), ranges[1].rematch);
  EXPECT_EQ(selection->winner, candidate(4));
  EXPECT_NEAR(selection->over_default.low, 0.053, 0.001);
}

TEST_F(TimeCandidates, WhoIsWithinATieOfTheLeaderPlays) {
  have_candidates(3);
  request_.ranges = {{1024, 1024}};
  time_us_ = [](const Candidate& one, int) { return 1 + 0.004 * (one.split_cap - 1); };
  time_candidates(request_);
  EXPECT_EQ(count(3, 1024), 1 + request_.plan.min_rounds);
}

TEST_F(TimeCandidates, StopsAHopelessCandidateSoonAndOthersLater) {
  have_candidates(2);
  request_.ranges = {{1024, 1024}};
  std::vector<double> limits;
  const auto measure = request_.measure;
  request_.measure = [&](const Candidate& one, int kv_len, const TimerOptions& options) {
    limits.push_back(options.abandon_above_us);
    return measure(one, kv_len, options);
  };
  time_candidates(request_);
  EXPECT_EQ(limits[0], 0);
  EXPECT_EQ(limits[1], kAbandonFactor);
  EXPECT_EQ(limits[2], 0) << "a rematch is fair";
}

TEST_F(TimeCandidates, PutsConditionsIntoItsRows) {
  have_candidates(2);
  request_.ranges = {{1024, 1024}};
  const auto measure = request_.measure;
  request_.measure = [&](const Candidate& one, int kv_len, const TimerOptions& options) {
    auto timing = measure(one, kv_len, options);
    timing->conditions = {1900, 3201, kThrottlePower, one.split_cap == 2 ? 1 : 0, true};
    return timing;
  };
  const auto rows = measurements_of(time_candidates(request_)[0], "13.0");
  const Measurement& row = rows[0].points[0];
  EXPECT_EQ(row.sm_clock_mhz, 1900);
  EXPECT_EQ(row.memory_clock_mhz, 3201);
  EXPECT_EQ(row.throttle, "power");
  EXPECT_FALSE(row.provisional);
  EXPECT_TRUE(rows[1].points[0].provisional);
  EXPECT_EQ(row.method, kTimingMethod);
  EXPECT_EQ(timing_of(row, "13.0")->median_us, row.median_us);
  EXPECT_FALSE(timing_of(row, "13.1")) << "another driver";
  EXPECT_FALSE(timing_of(rows[1].points[0], "13.0")) << "disturbed";
  Measurement older = row;
  --older.method;
  EXPECT_FALSE(timing_of(older, "13.0"));
}

}  // namespace
}  // namespace attune
