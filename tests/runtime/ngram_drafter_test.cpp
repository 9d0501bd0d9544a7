#include "runtime/ngram_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/error.h"

namespace attune {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens proposed(NgramDrafter& drafter, const Tokens& tokens, int max_tokens) {
  drafter.begin(tokens.front());
  drafter.append(std::span(tokens).subspan(1), {});
  return drafter.propose(max_tokens, {}).tokens;
}

TEST(NgramDrafter, ProposesWhatFollowedBefore) {
  NgramDrafter drafter({.max_n = 3, .min_n = 1});
  EXPECT_EQ(proposed(drafter, {1, 2, 3, 4, 5, 1, 2}, 3), (Tokens{3, 4, 5}));
  // The longest match goes first, though a shorter one is more recent.
  EXPECT_EQ(proposed(drafter, {7, 1, 2, 3, 9, 2, 4, 7, 1, 2}, 2), (Tokens{3, 9}));
  // Of equally long ones the most recent.
  EXPECT_EQ(proposed(drafter, {1, 2, 3, 8, 1, 2, 4, 9, 1, 2}, 2), (Tokens{4, 9}));
}

TEST(NgramDrafter, ProposesNothingWithoutAMatch) {
  NgramDrafter drafter({.max_n = 3, .min_n = 2});
  EXPECT_EQ(proposed(drafter, {1, 2, 3, 4, 2}, 4), Tokens());  // one token is too short a match
  EXPECT_EQ(proposed(drafter, {1}, 4), Tokens());
  EXPECT_EQ(proposed(drafter, {1, 2, 1, 2}, 0), Tokens());
  EXPECT_TRUE(NgramDrafter().propose(4, {}).tokens.empty());
}

TEST(NgramDrafter, MatchGoesOnInItsProposals) {
  NgramDrafter drafter({.max_n = 3, .min_n = 1});
  EXPECT_EQ(proposed(drafter, {5, 5}, 4), (Tokens{5, 5, 5, 5}));
  EXPECT_EQ(proposed(drafter, {1, 2, 3, 1, 2, 3}, 7), (Tokens{1, 2, 3, 1, 2, 3, 1}));
}

TEST(NgramDrafter, ProposalsAreNotDrawn) {
  NgramDrafter drafter;
  drafter.begin(1);
  drafter.append(Tokens{2, 3, 1, 2}, {});
  const Proposal proposal = drafter.propose(2, {.temperature = 1});
  EXPECT_EQ(proposal.tokens, (Tokens{3, 1}));
  EXPECT_TRUE(proposal.probabilities.empty());
}

TEST(NgramDrafter, BeginForgetsTheSequence) {
  NgramDrafter drafter;
  EXPECT_EQ(proposed(drafter, {1, 2, 3, 1, 2}, 1), (Tokens{3}));
  EXPECT_EQ(proposed(drafter, {9, 1, 2}, 1), Tokens());
}

Tokens searched(const Tokens& tokens, int max_tokens, const NgramOptions& options) {
  const int length = static_cast<int>(tokens.size());
  for (int n = std::min(options.max_n, length - 1); n >= options.min_n; --n) {
    for (int end = length - 1; end >= n; --end) {
      if (!std::equal(tokens.end() - n, tokens.end(), tokens.begin() + end - n)) continue;
      Tokens all = tokens;
      for (int i = 0; i < max_tokens; ++i) all.push_back(all[static_cast<std::size_t>(end + i)]);
      return {all.begin() + length, all.end()};
    }
  }
  return {};
}

TEST(NgramDrafter, FindsWhatASearchOfTheWholeSequenceFinds) {
  std::mt19937 random(2);
  int num_matches = 0;
  for (int round = 0; round < 40; ++round) {
    NgramOptions options = {.max_n = 1 + static_cast<int>(random() % 5)};
    options.min_n = 1 + static_cast<int>(random() % static_cast<unsigned>(options.max_n));
    const unsigned vocab_size = 2 + random() % 8;
    NgramDrafter drafter(options);
    Tokens tokens = {static_cast<std::int32_t>(random() % vocab_size)};
    drafter.begin(tokens[0]);
    while (tokens.size() < 200) {
      const int max_tokens = static_cast<int>(random() % 16);
      const Tokens wanted = searched(tokens, max_tokens, options);
      ASSERT_EQ(drafter.propose(max_tokens, {}).tokens, wanted);
      num_matches += !wanted.empty();
      Tokens next(1 + random() % 4);
      for (std::int32_t& token : next) token = static_cast<std::int32_t>(random() % vocab_size);
      drafter.append(next, {});
      tokens.insert(tokens.end(), next.begin(), next.end());
    }
  }
  EXPECT_GT(num_matches, 500);
}

// A search of the sequence at every step would take minutes.
TEST(NgramDrafter, StepsDoNotSlowDownInLongContexts) {
  constexpr int kContext = 131072;
  NgramDrafter drafter;
  drafter.begin(0);
  std::mt19937 random(5);
  for (int i = 1; i < kContext; ++i) {
    drafter.append(Tokens{static_cast<std::int32_t>(random() % 262144)}, {});
    ASSERT_LE(drafter.propose(15, {}).size(), 15);
  }
}

TEST(NgramDrafter, LengthsOutOfRangeAreRefused) {
  for (const NgramOptions& options : {NgramOptions{.max_n = 2, .min_n = 3},
                                      {.max_n = 2, .min_n = 0},
                                      {.max_n = 17, .min_n = 1}}) {
    EXPECT_THROW(NgramDrafter{options}, InvalidArgument);
  }
}

}  // namespace
}  // namespace attune
