// Drafters whose proposals are as good or as bad as a test of speculation asks for.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/drafter.h"
#include "runtime/ngram_drafter.h"
#include "templates/problem.h"

namespace attune {

constexpr int kLongestChain = kMaxVerifyTokens - 1;

enum class Drafting { kEagle3, kNgram, kRight, kWrong, kHalfRight };
constexpr Drafting kDraftings[] = {Drafting::kEagle3, Drafting::kNgram, Drafting::kRight,
                                   Drafting::kWrong, Drafting::kHalfRight};

inline std::string_view name_of(Drafting drafting) {
  constexpr std::string_view kNames[] = {"eagle3", "ngram", "right", "wrong", "half_right"};
  return kNames[static_cast<int>(drafting)];
}
inline void PrintTo(Drafting drafting, std::ostream* out) { *out << name_of(drafting); }

// Asks for 1 to 15 proposals in turn, so that every length meets every place of a sequence.
class WalkingDrafter final : public Drafter {
 public:
  WalkingDrafter(Drafter& drafter, int first) : drafter_(drafter), num_rounds_(first) {}
  std::span<const int> taps() const override { return drafter_.taps(); }
  void begin(std::int32_t first_token) override { drafter_.begin(first_token); }
  void append(std::span<const std::int32_t> tokens, const TargetFeatures& features) override {
    drafter_.append(tokens, features);
  }
  Proposal propose(int max_tokens, const SamplingOptions& options) override {
    const int wanted = 1 + num_rounds_++ % kLongestChain;
    Proposal proposal = drafter_.propose(std::min(max_tokens, wanted), options);
    ++num_chains_[static_cast<std::size_t>(proposal.size())];
    return proposal;
  }

  // By length.
  const std::array<std::int64_t, kLongestChain + 1>& num_chains() const { return num_chains_; }

 private:
  Drafter& drafter_;
  int num_rounds_;
  std::array<std::int64_t, kLongestChain + 1> num_chains_{};
};

// Knows what plain decoding emits. Half right is a chain that is right up to any of its places, with
// equal chances, wrong there, and right or wrong behind it.
class AdversaryDrafter final : public Drafter {
 public:
  AdversaryDrafter(Drafting drafting, std::vector<int> known, int vocab_size)
      : drafting_(drafting), known_(std::move(known)), vocab_size_(vocab_size) {}
  void begin(std::int32_t) override { length_ = 1; }
  void append(std::span<const std::int32_t> tokens, const TargetFeatures&) override {
    length_ += tokens.size();
  }
  Proposal propose(int max_tokens, const SamplingOptions&) override {
    Proposal proposal;
    const auto num_right = static_cast<int>(random_() % static_cast<unsigned>(max_tokens + 1));
    for (int i = 0; i < max_tokens; ++i) {
      const std::size_t at = length_ + static_cast<std::size_t>(i);
      const int right = at < known_.size() ? known_[at] : 0;
      const bool is_right =
          drafting_ == Drafting::kRight || (drafting_ == Drafting::kHalfRight &&
                                            (i < num_right || (i > num_right && random_() % 2)));
      const int off = 1 + static_cast<int>(random_() % static_cast<unsigned>(vocab_size_ - 1));
      proposal.tokens.push_back(is_right ? right : (right + off) % vocab_size_);
    }
    return proposal;
  }

 private:
  Drafting drafting_;
  std::vector<int> known_;  // the prompt and what plain decoding adds
  int vocab_size_;
  std::size_t length_ = 0;
  std::mt19937 random_{7};
};

// N-grams behind a text like the one to come, as in a prompt that holds a draft of the answer: every
// seventh token of it is another. A model of random weights repeats itself too seldom.
class RecallingDrafter final : public Drafter {
 public:
  RecallingDrafter(std::vector<int> answer, int vocab_size) : text_(std::move(answer)) {
    for (std::size_t i = 6; i < text_.size(); i += 7) text_[i] = (text_[i] + 1) % vocab_size;
  }
  void begin(std::int32_t first_token) override {
    ngram_.begin(text_.front());
    ngram_.append(std::span(text_).subspan(1), {});
    ngram_.append(std::span(&first_token, 1), {});
  }
  void append(std::span<const std::int32_t> tokens, const TargetFeatures& features) override {
    ngram_.append(tokens, features);
  }
  Proposal propose(int max_tokens, const SamplingOptions& options) override {
    return ngram_.propose(max_tokens, options);
  }

 private:
  std::vector<int> text_;
  NgramDrafter ngram_{{.max_n = 4, .min_n = 1}};
};

}  // namespace attune
