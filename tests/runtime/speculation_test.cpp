// Rounds of speculation on a toy model: what they emit is what the model alone would emit.
#include <gtest/gtest.h>

#include "runtime/ngram_drafter.h"
#include "tests/runtime/chi_square.h"
#include "tests/runtime/toy_model.h"

namespace attune {
namespace {

// Knows what comes, and says so: always, never, or every other token.
class KnowingDrafter final : public Drafter {
 public:
  KnowingDrafter(Tokens known, int wrong_every)
      : known_(std::move(known)), wrong_every_(wrong_every) {}
  void begin(std::int32_t) override { length_ = 1; }
  void append(std::span<const std::int32_t> tokens, const TargetFeatures&) override {
    length_ += tokens.size();
  }
  Proposal propose(int max_tokens, const SamplingOptions&) override {
    Proposal proposal;
    for (int i = 0; i < max_tokens && length_ + i < known_.size(); ++i) {
      const std::size_t at = length_ + static_cast<std::size_t>(i);
      const bool is_wrong = wrong_every_ > 0 && at % wrong_every_ == 0;
      proposal.tokens.push_back(is_wrong ? known_[at] ^ 1 : known_[at]);
    }
    return proposal;
  }

 private:
  Tokens known_;
  std::size_t wrong_every_;
  std::size_t length_ = 0;
};

// Whatever is proposed and however long the chains are. Also when sampling: what was not drawn is
// compared with the token that is emitted anyway.
TEST(Speculation, EmitsThePlainTokensForEveryDrafterThatDoesNotDraw) {
  const ToyModel model = {.vocab_size = 12, .salt = 3};
  const Tokens prompt = {1, 2, 3, 1, 2};
  constexpr int kNumTokens = 1000;
  for (const SamplingOptions& options :
       {SamplingOptions{}, {.temperature = 0.7, .top_k = 5, .top_p = 0.9, .seed = 4}}) {
    const Tokens plain = decode_plainly(model, prompt, kNumTokens, options);
    NgramDrafter ngram;
    KnowingDrafter right(plain, 0), wrong(plain, 1), half_right(plain, 2);
    for (int chain_length = 1; chain_length <= 15; ++chain_length) {
      for (Drafter* drafter :
           std::initializer_list<Drafter*>{&ngram, &right, &wrong, &half_right}) {
        SpeculationStats stats;
        ASSERT_EQ(
            decode_speculatively(model, *drafter, prompt, kNumTokens, chain_length, options, stats),
            plain)
            << "chain_length=" << chain_length;
        ASSERT_EQ(stats.num_emitted(), kNumTokens - 1);
        if (drafter == &right) {
          EXPECT_EQ(stats.num_rounds(), (kNumTokens - 1 + chain_length) / (chain_length + 1));
        }
        if (drafter == &wrong) {
          EXPECT_EQ(stats.num_accepted(), 0);
        }
      }
    }
  }
}

TEST(Speculation, GreedyTokensAreThePlainOnesWhenProposalsAreDrawn) {
  const ToyModel model = {.salt = 3};
  const Tokens plain = decode_plainly(model, {1}, 500, {});
  ToyDrafter drafter({.vocab_size = 5, .salt = 9}, {0, 2, 3, 5, 7});
  for (int chain_length = 1; chain_length <= 15; ++chain_length) {
    SpeculationStats stats;
    EXPECT_EQ(decode_speculatively(model, drafter, {1}, 500, chain_length, {}, stats), plain);
  }
}

struct DistributionCase {
  const char* name;
  ToyModel model;
  ToyModel draft_model;
  Tokens target_tokens;  // of the draft's vocabulary; empty: the model's own
  int chain_length;
  SamplingOptions options;
};

void PrintTo(const DistributionCase& one, std::ostream* out) { *out << one.name; }

const Tokens kMap = {0, 2, 3, 5, 7};

const DistributionCase kCases[] = {
    {"chain1", {.salt = 1}, {.vocab_size = 5, .salt = 2}, kMap, 1, {.temperature = 1}},
    {"chain2_cold", {.salt = 3}, {.vocab_size = 5, .salt = 4}, kMap, 2, {.temperature = 0.5}},
    {"chain3_top_k",
     {.salt = 5},
     {.vocab_size = 5, .salt = 6},
     kMap,
     3,
     {.temperature = 1.5, .top_k = 3}},
    {"chain4_top_p",
     {.salt = 7},
     {.vocab_size = 5, .salt = 8},
     kMap,
     4,
     {.temperature = 1, .top_p = 0.7}},
    {"chain4_top_k_top_p",
     {.salt = 9},
     {.vocab_size = 5, .salt = 10},
     kMap,
     4,
     {.temperature = 0.8, .top_k = 6, .top_p = 0.9}},
    {"p_with_zeros",
     {.salt = 11, .ruled_out_every = 3},
     {.vocab_size = 5, .salt = 12},
     kMap,
     3,
     {.temperature = 1}},
    {"one_vocabulary", {.salt = 13}, {.salt = 14}, {}, 4, {.temperature = 1.3}},
    {"draft_is_the_model", {.salt = 15}, {.salt = 15}, {}, 3, {.temperature = 1}},
    // Behind token 1 the model emits even tokens, the draft odd ones.
    {"no_overlap",
     {.salt = 16, .ruled_out_every = 2},
     {.vocab_size = 4, .salt = 17},
     {1, 3, 5, 7},
     2,
     {.temperature = 1}},
};

class SpeculativeDistribution : public testing::TestWithParam<DistributionCase> {
 protected:
  // Of every pair of tokens behind `prompt`, exactly.
  std::vector<double> pair_probabilities(const Tokens& prompt) const {
    const ToyModel& model = GetParam().model;
    std::vector<double> pairs;
    const auto first = probabilities(model.logits(prompt), GetParam().options);
    for (std::int32_t token = 0; token < model.vocab_size; ++token) {
      for (const double p : probabilities(model.logits(with(prompt, token)), GetParam().options)) {
        pairs.push_back(first[static_cast<std::size_t>(token)] * p);
      }
    }
    return pairs;
  }
};

TEST_P(SpeculativeDistribution, IsThatOfPlainSampling) {
  const DistributionCase& c = GetParam();
  const Tokens prompt = {4, 1};
  constexpr std::int64_t kNumRuns = 200000;
  const auto size = static_cast<std::size_t>(c.model.vocab_size);
  std::vector<std::int64_t> first(size), pairs(size * size);
  ToyDrafter drafter(c.draft_model, c.target_tokens);
  for (std::int64_t run = 0; run < kNumRuns; ++run) {
    SamplingOptions options = c.options;
    options.seed = static_cast<std::uint64_t>(run);
    drafter.begin(prompt[0]);
    drafter.append(std::span(prompt).subspan(1), {});
    Tokens tokens = prompt;
    while (tokens.size() < prompt.size() + 2) {
      const Tokens confirmed =
          speculate(c.model, drafter, tokens, c.chain_length, options).confirmed;
      tokens.insert(tokens.end(), confirmed.begin(), confirmed.end());
      drafter.append(confirmed, {});
    }
    const auto a = static_cast<std::size_t>(tokens[2]), b = static_cast<std::size_t>(tokens[3]);
    ++first[a];
    ++pairs[a * size + b];
  }
  EXPECT_TRUE(is_drawn_from(probabilities(c.model.logits(prompt), c.options), first));
  EXPECT_TRUE(is_drawn_from(pair_probabilities(prompt), pairs));
}

INSTANTIATE_TEST_SUITE_P(, SpeculativeDistribution, testing::ValuesIn(kCases));

}  // namespace
}  // namespace attune
