// Options::invariant through the whole runtime: a token's outputs have the same bits however many
// tokens its step has, wherever it stands among them, alone or in a batch of sequences of other
// lengths, and whatever its step's drafts are.
#pragma once

#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/gemma4_served.h"
#include "tests/support/invariance.h"

namespace attune {

struct StepInvarianceOptions {
  KvLayout global_layout = KvLayout::kContiguous;
  // Committed tokens of the first sequence in front of those that are compared, ascending.
  std::vector<int> starts;
  int max_tokens = 300;
};

class StepInvariance {
 public:
  StepInvariance(Gemma4Bench& bench, const StepInvarianceOptions& options)
      : options_(options),
        model_(small_geometry(options.global_layout)),
        attention_(bench.engine, model_.geometry, gemma4_options(options)),
        stream_(bench.device().create_stream()),
        prompt_(bench.device(), model_, 1, kMaxPrefill, Projections::kDense),
        alone_(bench.device(), model_, 1, kMaxVerifyTokens, Projections::kFused),
        together_(bench.device(), model_, kBatch, kMaxVerifyTokens, Projections::kFused),
        batch_(attention_.make_batch(kBatch)) {
    model_.set_norm_weights(attention_);
    for (int i = 0; i < kBatch; ++i) {
      served_.emplace_back(attention_, model_, static_cast<std::uint32_t>(i + 1));
      books_.emplace_back(static_cast<std::size_t>(model_.num_layers()));
    }
  }

  void run() {
    for (const int start : options_.starts) compare_behind(start);
    std::int64_t num_compared = 0, num_differing_bits = 0;
    for (const auto& books : books_) {
      for (const RowBook& book : books) {
        num_compared += book.num_compared();
        num_differing_bits += book.num_differing_bits();
        EXPECT_EQ(book.first_difference(), "");
      }
    }
    EXPECT_EQ(num_differing_bits, 0);
    EXPECT_GT(num_compared, 0);
    std::printf("%lld rows compared\n", static_cast<long long>(num_compared));
  }

 private:
  static constexpr int kBatch = 3;
  // Tokens that are compared behind a start: one, and the largest window.
  static constexpr int kSpan = 1 + kMaxVerifyTokens;
  static constexpr int kMaxPrefill = 40;
  static constexpr int kWindows[] = {2, 3, 5, 8, 16};

  static Gemma4Options gemma4_options(const StepInvarianceOptions& options) {
    Gemma4Options made = small_options(options.global_layout);
    made.max_tokens = options.max_tokens;
    made.max_prefill = kMaxPrefill;
    made.max_verify = kMaxVerifyTokens;
    made.max_sequences = kBatch;
    made.batch_sizes = {kBatch};
    made.invariant = true;
    return made;
  }

  void compare_behind(int start) {
    const int lengths[kBatch] = {start, start + 61, start / 3 + 1};
    for (std::size_t i = 0; i < served_.size(); ++i) {
      grow_to(served_[i], lengths[i], model_, prompt_, kMaxPrefill, stream_.get());
      cover_alone(i, 1);
    }
    for (const int window : kWindows) cover_alone(0, window);
    cover_together(1, 0);
    for (std::size_t i = 0; i < std::size(kWindows); ++i) {
      cover_together(kWindows[i], static_cast<int>(i) + 1);
    }
  }
  void cover_alone(std::size_t idx, int window) {
    cover(served_[idx].session, alone_, {idx}, window);
  }
  void cover_together(int window, int turn) {
    std::vector<std::size_t> entries;
    std::vector<Gemma4Session*> sessions;
    for (int b = 0; b < kBatch; ++b) {
      entries.push_back(static_cast<std::size_t>((b + turn) % kBatch));
      sessions.push_back(&served_[entries.back()].session);
    }
    batch_.assign(sessions, stream_.get());
    cover(batch_, together_, entries, window);
  }

  // Steps of `window` tokens over the span, which is forgotten at last. The first step's drafts are
  // rejected but for its first token, so that windows do not all begin at multiples.
  template <typename Sequences>
  void cover(Sequences& on, StepBuffers& buffers, const std::vector<std::size_t>& entries,
             int window) {
    std::vector<int> starts;
    for (const std::size_t idx : entries) starts.push_back(served_[idx].sequence.length());
    for (int done = 0; done + window <= kSpan;) {
      const int kept = done == 0 ? 1 : window;
      std::vector<std::vector<Token>> tokens;
      for (const std::size_t idx : entries) tokens.push_back(served_[idx].next(window, kept));
      buffers.upload(tokens, stream_.get());
      launch_layers(on, way_of(window), model_, buffers, window, stream_.get());
      std::vector<const AppSequence*> sequences;
      for (std::size_t b = 0; b < entries.size(); ++b) {
        served_[entries[b]].push(tokens[b]);
        sequences.push_back(&served_[entries[b]].sequence);
      }
      // Equal bits are worth nothing where they are wrong.
      if (done == 0) {
        expect_right_outputs(buffers, model_, sequences, window, step_text(entries, window),
                             stream_.get());
      }
      add_rows(buffers, entries, window, kept);
      commit(on, entries.size(), kept);
      for (const std::size_t idx : entries) {
        served_[idx].sequence.cut(served_[idx].sequence.length() - window + kept);
      }
      done += kept;
    }
    for (std::size_t b = 0; b < entries.size(); ++b) {
      served_[entries[b]].roll_back_to(starts[b], stream_.get());
    }
  }
  void commit(Gemma4Session& session, std::size_t, int kept) {
    session.commit(kept, stream_.get());
  }
  void commit(Gemma4Batch& batch, std::size_t size, int kept) {
    batch.commit(std::vector<int>(size, kept), stream_.get());
  }

  // Rows of tokens that are kept: the others are no tokens of the sequence.
  void add_rows(const StepBuffers& buffers, const std::vector<std::size_t>& entries, int window,
                int kept) {
    for (int layer = 0; layer < model_.num_layers(); ++layer) {
      const auto output = buffers.output(layer, stream_.get());
      const auto lse = buffers.lse(layer, stream_.get());
      const auto heads = static_cast<std::size_t>(model_.layer(layer).num_q_heads);
      const std::size_t row_size = heads * static_cast<std::size_t>(model_.layer(layer).head_dim);
      for (std::size_t b = 0; b < entries.size(); ++b) {
        const int first = served_[entries[b]].sequence.length() - window;
        for (int token = 0; token < kept; ++token) {
          const std::size_t row = b * static_cast<std::size_t>(window) + token;
          books_[entries[b]][static_cast<std::size_t>(layer)].add(
              first + token, std::as_bytes(std::span(&output[row * row_size], row_size)),
              std::span(&lse[row * heads], heads),
              fmt::format("layer {} token {} of {}", layer, token, step_text(entries, window)));
        }
      }
    }
  }
  static std::string step_text(const std::vector<std::size_t>& entries, int window) {
    return fmt::format("a step of {} in a batch of {}", window, entries.size());
  }

  const StepInvarianceOptions options_;
  const AppModel model_;
  Gemma4Attention attention_;
  const Stream stream_;
  StepBuffers prompt_, alone_, together_;
  Gemma4Batch batch_;
  std::vector<ServedSequence> served_;
  std::vector<std::vector<RowBook>> books_;  // of each sequence and layer
};

inline void expect_invariant_steps(Gemma4Bench& bench, const StepInvarianceOptions& options) {
  StepInvariance(bench, options).run();
}

}  // namespace attune
