#include "runtime/acceptance.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/error.h"
#include "tests/runtime/toy_model.h"

namespace attune {
namespace {

// Rows of 4 logits whose largest are at `tokens`.
std::vector<float> rows_with(const Tokens& tokens) {
  std::vector<float> rows;
  for (const std::int32_t token : tokens) {
    for (std::int32_t i = 0; i < 4; ++i) rows.push_back(i == token ? 2.0f : 0.5f);
  }
  return rows;
}

TEST(Acceptance, GreedyTakesTheMatchingPrefixAndTheTargetsOwnToken) {
  const auto rows = rows_with({3, 1, 2, 0});
  const auto judged = [&](Tokens proposed) {
    return accept({std::span(rows).first(4 * (proposed.size() + 1)), 4}, {.tokens = proposed}, {},
                  0);
  };
  EXPECT_EQ(judged({3, 1, 2}), (Acceptance{3, 0}));  // the bonus
  EXPECT_EQ(judged({3, 1, 0}), (Acceptance{2, 2}));  // the correction
  EXPECT_EQ(judged({3, 0, 2}), (Acceptance{1, 1}));  // a match behind it counts no more
  EXPECT_EQ(judged({0, 1, 2}), (Acceptance{0, 3}));
  EXPECT_EQ(judged({}), (Acceptance{0, 3}));  // a plain step
}

TEST(Acceptance, GreedyTiesGoToTheLowestToken) {
  const std::vector<float> rows = {1, 7, 7, 0, 0, 0, 0, 0};
  EXPECT_EQ(accept({rows, 4}, {.tokens = {1}}, {}, 0), (Acceptance{1, 0}));
  EXPECT_EQ(accept({rows, 4}, {.tokens = {2}}, {}, 0), (Acceptance{0, 1}));
}

TEST(Acceptance, GreedyIgnoresWhatProposalsWereDrawnFrom) {
  const auto rows = rows_with({3, 1});
  const Proposal proposal = {.tokens = {3}, .probabilities = {0.5, 0.5, 0, 0}};
  EXPECT_EQ(accept({rows, 4}, proposal, {}, 0), (Acceptance{1, 1}));
}

TEST(Acceptance, NoRowBehindARejectionIsRead) {
  Tokens asked;
  accept_prefix(Tokens{5, 6, 7}, [&](int row) {
    asked.push_back(row);
    return row == 1 ? 9 : 5;
  });
  EXPECT_EQ(asked, (Tokens{0, 1}));
}

// With p = (0.5, 0.25, 0.25, 0) and q = (0.25, 0.75) on the target's tokens 0 and 2.
class DrawnProposal : public testing::Test {
 protected:
  Acceptance judged(std::int32_t proposed, std::uint64_t seed) const {
    const Proposal proposal = {
        .tokens = {proposed}, .probabilities = {0.25, 0.75}, .target_tokens = targets_};
    return accept({rows_, 4}, proposal, {.temperature = 1, .seed = seed}, kPosition);
  }

  static constexpr std::int64_t kPosition = 17;
  const Tokens targets_ = {0, 2};
  const std::vector<float> rows_ = {
      std::log(2.0f), 0, 0, -std::numeric_limits<float>::infinity(), 0, 0, 0, 9};
};

TEST_F(DrawnProposal, IsAcceptedWithProbabilityPByQ) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    EXPECT_EQ(judged(0, seed).num_accepted, 1) << "p/q is 2";
    // p/q is 1/3.
    const bool is_accepted = uniform(seed, kPosition, Draw::kAccept) < 1 / 3.0;
    EXPECT_EQ(judged(2, seed).num_accepted, is_accepted) << seed;
  }
}

TEST_F(DrawnProposal, ResidualIsOverTheWholeVocabulary) {
  // (p - q)+ is 0.25 at 0 and 0.25 at 1, which the drafter cannot reach.
  int num_rejected = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const Acceptance acceptance = judged(2, seed);
    if (acceptance.num_accepted == 1) continue;
    ++num_rejected;
    EXPECT_EQ(acceptance.next_token, uniform(seed, kPosition, Draw::kToken) < 0.5 ? 0 : 1) << seed;
  }
  EXPECT_GT(num_rejected, 1000);
}

TEST_F(DrawnProposal, BonusIsThePlainTokenOfTheLastRow) {
  const std::span<const float> last = std::span(rows_).subspan(4);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    EXPECT_EQ(judged(0, seed).next_token,
              next_token(last, {.temperature = 1, .seed = seed}, kPosition + 1));
  }
}

TEST(Acceptance, DraftTokensOfOneTargetTokenAddUp) {
  // Both draft tokens are token 1, so q(1) = 1 and the residual is p without it.
  const Tokens targets = {1, 1};
  const std::vector<float> rows(8, 0.0f);
  const Proposal proposal = {.tokens = {1}, .probabilities = {0.5, 0.5}, .target_tokens = targets};
  int num_accepted = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    num_accepted += accept({rows, 4}, proposal, {.temperature = 1, .seed = seed}, 0).num_accepted;
  }
  EXPECT_NEAR(num_accepted, 1000, 150);
}

// Probabilities that rounding makes too large everywhere, here by much.
TEST(Acceptance, WhereQLeavesNothingOfPTheTokenIsOfP) {
  const std::vector<float> rows(8, 0.0f);
  const Proposal proposal = {.tokens = {0}, .probabilities = {1, 1, 1, 1}};
  int num_rejected = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    num_rejected +=
        accept({rows, 4}, proposal, {.temperature = 1, .seed = seed}, 0).num_accepted == 0;
  }
  EXPECT_GT(num_rejected, 40);
}

TEST(Acceptance, ProposalsThatContradictThemselvesAreRefused) {
  const std::vector<float> rows(8, 0.0f);
  const SamplingOptions sampled = {.temperature = 1};
  const auto judged = [&](const Proposal& proposal, int vocab_size = 4) {
    return accept({rows, vocab_size}, proposal, sampled, 0);
  };
  const Tokens two = {0, 2}, outside = {0, 4};
  EXPECT_NO_THROW(judged({.tokens = {0}, .probabilities = {0.5, 0.5}, .target_tokens = two}));
  EXPECT_THROW(judged({.tokens = {0, 1}}), InvalidArgument);  // two rows judge one
  EXPECT_THROW(judged({.tokens = {0}}, 0), InvalidArgument);
  EXPECT_THROW(judged({.tokens = {0}, .probabilities = {0.5, 0.5}}), InvalidArgument);
  EXPECT_THROW(judged({.tokens = {0}, .probabilities = {1}, .target_tokens = two}),
               InvalidArgument);
  EXPECT_THROW(judged({.tokens = {1}, .probabilities = {0.5, 0.5}, .target_tokens = two}),
               InvalidArgument);  // not drawn from it
  EXPECT_THROW(judged({.tokens = {9}, .probabilities = {0.5, 0.5}, .target_tokens = two}),
               InvalidArgument);
  EXPECT_THROW(judged({.tokens = {0}, .probabilities = {0.5, 0.5}, .target_tokens = outside}),
               InvalidArgument);
  EXPECT_THROW(accept({rows, 4}, {.tokens = {0}}, {.temperature = 1, .top_p = 0}, 0),
               InvalidArgument);
}

}  // namespace
}  // namespace attune
