#include "runtime/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "common/error.h"
#include "runtime/philox.h"
#include "tests/runtime/chi_square.h"

namespace attune {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Logits whose softmax at temperature 1 is weights / sum.
std::vector<float> logits_of(const std::vector<double>& weights) {
  std::vector<float> logits;
  for (const double weight : weights) logits.push_back(static_cast<float>(std::log(weight)));
  return logits;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-6) << i;
}

// The known answers published with the generator.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0, 0),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, kOnes, kOnes),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, IsEvenlySpreadAndDependsOnEachArgument) {
  std::vector<std::int64_t> bins(64);
  for (std::int64_t position = 0; position < 200000; ++position) {
    const double u = uniform(5, position, Draw::kToken);
    ASSERT_TRUE(u >= 0 && u < 1) << u;
    ++bins[static_cast<std::size_t>(u * 64)];
  }
  EXPECT_TRUE(is_drawn_from(std::vector<double>(64, 1.0 / 64), bins));
  std::set<double> numbers;
  for (const std::uint64_t seed : {0ull, 1ull, 1ull << 32, ~0ull}) {
    for (const std::int64_t position : {0ll, 1ll, 1ll << 32}) {
      for (const Draw draw : {Draw::kToken, Draw::kDraft, Draw::kAccept}) {
        numbers.insert(uniform(seed, position, draw));
      }
    }
  }
  EXPECT_EQ(numbers.size(), 4u * 3 * 3);
}

TEST(Argmax, TakesTheFirstOfEqualLogits) {
  EXPECT_EQ(argmax(std::vector<float>{-1, 3, 2, 3}), 1);
  EXPECT_EQ(argmax(std::vector<float>{-kInfinity, -5, -kInfinity}), 1);
  EXPECT_EQ(argmax(std::vector<float>{0, -0.0f}), 0);
}

TEST(Argmax, LogitsThatAreNoNumbersAreRefused) {
  for (const std::vector<float>& logits :
       {std::vector<float>{1, kNan}, {kNan, 1}, {kInfinity, 0}, {-kInfinity, -kInfinity}, {}}) {
    EXPECT_THROW(argmax(logits), InvalidArgument);
    EXPECT_THROW(probabilities(logits, {.temperature = 1}), InvalidArgument);
    EXPECT_THROW(next_token(logits, {}, 0), InvalidArgument);
  }
  try {
    argmax(std::vector<float>{1, 2, kNan});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("token=2 logit=nan"), std::string::npos);
  }
}

TEST(Probabilities, AreTheSoftmaxOfLogitsByTemperature) {
  const auto logits = logits_of({1, 2, 3, 4});
  expect_near(probabilities(logits, {.temperature = 1}), {0.1, 0.2, 0.3, 0.4});
  expect_near(probabilities(logits, {.temperature = 0.5}), {1 / 30., 4 / 30., 9 / 30., 16 / 30.});
  expect_near(probabilities(logits, {.temperature = 1e-6}), {0, 0, 0, 1});
  expect_near(probabilities(std::vector<float>{-kInfinity, 30, 30}, {.temperature = 1}),
              {0, 0.5, 0.5});
}

TEST(Probabilities, TopKKeepsTheLargestAndOfEqualOnesTheFirst) {
  expect_near(probabilities(logits_of({1, 4, 3, 2}), {.temperature = 1, .top_k = 2}),
              {0, 4 / 7., 3 / 7., 0});
  expect_near(probabilities(logits_of({1, 2, 2, 2}), {.temperature = 1, .top_k = 2}),
              {0, 0.5, 0.5, 0});
  for (const int all : {0, 4, 99}) {
    expect_near(probabilities(logits_of({1, 2, 3, 4}), {.temperature = 1, .top_k = all}),
                {0.1, 0.2, 0.3, 0.4});
  }
}

TEST(Probabilities, TopPKeepsTheFewestThatReachIt) {
  const auto logits = logits_of({1, 4, 3, 2});
  expect_near(probabilities(logits, {.temperature = 1, .top_p = 0.39}), {0, 1, 0, 0});
  expect_near(probabilities(logits, {.temperature = 1, .top_p = 0.41}), {0, 4 / 7., 3 / 7., 0});
  expect_near(probabilities(logits, {.temperature = 1, .top_p = 0.95}), {0.1, 0.4, 0.3, 0.2});
  expect_near(probabilities(logits, {.temperature = 1, .top_p = 1e-9}), {0, 1, 0, 0});
  expect_near(probabilities(logits_of({1, 1, 1, 1}), {.temperature = 1, .top_p = 0.5}),
              {0.5, 0.5, 0, 0});
  // Of what top_k leaves: 4/7 reaches 0.5.
  expect_near(probabilities(logits, {.temperature = 1, .top_k = 2, .top_p = 0.5}), {0, 1, 0, 0});
}

// As a sort of the whole vocabulary has it.
std::vector<double> sorted_probabilities(const std::vector<float>& logits,
                                         const SamplingOptions& options) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < order.size()) {
    order.resize(static_cast<std::size_t>(options.top_k));
  }
  const auto weight = [&](std::size_t token) {
    return std::exp((double{logits[token]} - logits[order[0]]) / options.temperature);
  };
  const auto mass = [&] {
    double sum = 0;
    for (const std::size_t token : order) sum += weight(token);
    return sum;
  };
  const double wanted = options.top_p * mass();
  double sum = 0;
  std::size_t kept = 0;
  while (kept < order.size() && sum < wanted) sum += weight(order[kept++]);
  order.resize(kept);
  std::vector<double> p(logits.size());
  for (const std::size_t token : order) p[token] = weight(token) / mass();
  return p;
}

TEST(Probabilities, AreThoseOfAWholeSort) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> logits(1 + random() % 400);
    // In steps, so that there are many ties.
    for (float& logit : logits) logit = static_cast<float>(random() % 64) / 8;
    const SamplingOptions options = {
        .temperature = 0.25 + random() % 8 * 0.25,
        .top_k = static_cast<int>(random() % 3 == 0 ? 0 : random() % 500),
        .top_p = random() % 3 == 0 ? 1 : (1 + random() % 97) / 98.3};
    expect_near(probabilities(logits, options), sorted_probabilities(logits, options));
  }
}

TEST(DrawToken, NeverTakesATokenOfNoWeight) {
  const std::vector<double> weights = {0, 1, 0, 3, 0};
  EXPECT_EQ(draw_token(weights, 0), 1);
  EXPECT_EQ(draw_token(weights, 0.2499), 1);
  EXPECT_EQ(draw_token(weights, 0.25), 3);
  EXPECT_EQ(draw_token(weights, std::nextafter(1.0, 0.0)), 3);
  // Sums that round: the last weight is taken, not the zero behind it.
  EXPECT_EQ(draw_token(std::vector<double>{0.1, 0.2, 0.3, 0}, 1.0), 2);
  EXPECT_THROW(draw_token(std::vector<double>{0, 0}, 0.5), InvalidArgument);
}

TEST(NextToken, DrawsByTheProbabilities) {
  const std::vector<float> logits = {0.5f, -1, 2, 1, -kInfinity, 0, 1.5f, -3};
  for (const SamplingOptions& options : {SamplingOptions{.temperature = 1, .seed = 1},
                                         {.temperature = 0.6, .top_k = 3, .seed = 2},
                                         {.temperature = 2, .top_p = 0.8, .seed = 3}}) {
    std::vector<std::int64_t> counts(logits.size());
    for (std::int64_t position = 0; position < 200000; ++position) {
      ++counts[static_cast<std::size_t>(next_token(logits, options, position))];
    }
    EXPECT_TRUE(is_drawn_from(probabilities(logits, options), counts));
  }
}

TEST(NextToken, IsGreedyAtTemperatureZero) {
  EXPECT_EQ(next_token(std::vector<float>{1, 5, 5, 0}, {.top_k = 1, .seed = 9}, 3), 1);
}

TEST(SamplingOptions, ThoseOutOfRangeAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const SamplingOptions refused[] = {{.temperature = -0.1},
                                     {.temperature = nan},
                                     {.temperature = std::numeric_limits<double>::infinity()},
                                     {.temperature = 1, .top_k = -1},
                                     {.temperature = 1, .top_p = 0},
                                     {.temperature = 1, .top_p = 1.01},
                                     {.temperature = 1, .top_p = nan},
                                     {.temperature = 0, .top_p = -1}};
  for (const SamplingOptions& options : refused) {
    EXPECT_THROW(check_sampling(options), InvalidArgument);
    EXPECT_THROW(probabilities(std::vector<float>{1, 2}, options), InvalidArgument);
  }
  EXPECT_THROW(probabilities(std::vector<float>{1, 2}, {}), InvalidArgument);  // greedy has none
  EXPECT_NO_THROW(check_sampling({.temperature = 2, .top_k = 64, .top_p = 0.95, .seed = 1}));
  try {
    check_sampling({.temperature = -1});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(
        error.what(),
        "the sampling options cannot be used: temperature=-1; temperature is 0 (greedy) or "
        "above");
  }
}

}  // namespace
}  // namespace attune
