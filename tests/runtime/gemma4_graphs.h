// Captured steps, replayed while sequences grow, shrink and, in a batch, change: right, equal in
// bits to the same step launched call by call, and nothing but launches on the device.
#pragma once

#include <algorithm>
#include <cstdio>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/gemma4_schedule.h"

namespace attune {

struct ReplayOptions {
  KvLayout global_layout = KvLayout::kContiguous;
  int batch = 1;  // 1: a session's own graph
  int num_replays = 60;
  int compare_every = 1;  // replays; with a direct launch and with the sequence in double
};

class Replays {
 public:
  static constexpr int kNumTokens = 5;

  Replays(Gemma4Bench& bench, const ReplayOptions& options)
      : watched_(*bench.watched),
        options_(options),
        model_(small_geometry(options.global_layout)),
        attention_(bench.engine, model_.geometry, gemma4_options(options)),
        stream_(watched_.create_stream()),
        buffers_(watched_, model_, options.batch, kNumTokens, Projections::kFused),
        prompt_(watched_, model_, 1, kPromptTokens, Projections::kFused) {
    model_.set_norm_weights(attention_);
    batch_ = attention_.make_batch(options.batch);
    bench.engine.seal();
    for (int i = 0; i < num_sequences(); ++i) {
      sessions_.push_back(attention_.open_session());
      sequences_.emplace_back(model_);
      prefill(i, kPromptTokens - 3 * i);
    }
    places_.resize(static_cast<std::size_t>(options.batch));
    for (int b = 0; b < options.batch; ++b) places_[static_cast<std::size_t>(b)] = b;
  }

  void run() {
    if (options_.batch > 1) assign();
    // The calls of a capture record, and check as those of a step do.
    begin_step();
    const Graph graph = watched_.capture(stream_.get(), [&] { launch_layers(); });
    commit(std::vector<int>(places_.size(), 0));
    double largest_error = 0;
    for (int replay = 0; replay < options_.num_replays && !::testing::Test::HasFailure();
         ++replay) {
      if (options_.batch > 1 && replay % 7 == 6) exchange();
      const std::vector<int> commits = draw_tokens();
      const bool compare = replay % options_.compare_every == 0;
      const auto replayed = watch([&] {
        begin_step();
        watched_.launch(graph, stream_.get());
      });
      push();
      if (compare) {
        largest_error = std::max(largest_error, error());
        expect_equal_bits_of_a_direct_launch();
      }
      const auto committed = watch([&] { commit(commits); });
      settle(commits);
      for (const auto& calls : {replayed, committed}) {
        for (const std::string& call : calls) {
          EXPECT_TRUE(call == "launch" || call == "launch_graph" || call == "is_capturing") << call;
        }
      }
      make_room();
    }
    std::printf("%d replays of a batch of %d, %d rollbacks: largest relative L2 %.2e\n",
                options_.num_replays, options_.batch, num_rollbacks_, largest_error);
  }

 private:
  static constexpr int kPromptTokens = 33;

  static Gemma4Options gemma4_options(const ReplayOptions& options) {
    Gemma4Options made = small_options(options.global_layout);
    made.max_sequences = options.batch + 2;
    made.batch_sizes = {options.batch};
    return made;
  }
  int num_sequences() const { return options_.batch == 1 ? 1 : options_.batch + 2; }
  int any(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  Gemma4Session& session(std::size_t b) { return sessions_[static_cast<std::size_t>(places_[b])]; }
  AppSequence& sequence(std::size_t b) { return sequences_[static_cast<std::size_t>(places_[b])]; }

  // The names of the device's calls while `body` runs.
  template <typename Body>
  std::set<std::string> watch(const Body& body) {
    std::set<std::string> calls;
    watched_.on_call = [&](std::string_view call) { calls.emplace(call); };
    body();
    watched_.on_call = nullptr;
    return calls;
  }

  void prefill(int idx, int num_tokens) {
    std::vector<Token> tokens;
    for (int i = 0; i < num_tokens; ++i) tokens.push_back({++last_id_, false});
    prompt_.upload({tokens}, stream_.get());
    Gemma4Session& session = sessions_[static_cast<std::size_t>(idx)];
    for (int layer = 0; layer < model_.num_layers(); ++layer) {
      session.prefill(layer, num_tokens, prompt_.args(layer), stream_.get());
    }
    session.commit(num_tokens, stream_.get());
    for (const Token token : tokens) sequences_[static_cast<std::size_t>(idx)].push(token);
  }

  void assign() {
    std::vector<Gemma4Session*> assigned;
    for (std::size_t b = 0; b < places_.size(); ++b) assigned.push_back(&session(b));
    batch_.assign(assigned, stream_.get());
  }
  // Another sequence takes a place of the batch; a new one takes that of a sequence that ends.
  void exchange() {
    std::vector<int> all;
    for (int i = 0; i < num_sequences(); ++i) all.push_back(i);
    std::shuffle(all.begin(), all.end(), random_);
    std::copy_n(all.begin(), places_.size(), places_.begin());
    if (any(0, 2) == 0) {
      const auto ends = static_cast<std::size_t>(places_.front());
      sessions_[ends] = Gemma4Session();
      sessions_[ends] = attention_.open_session();
      sequences_[ends] = AppSequence(model_);
      prefill(places_.front(), any(1, kPromptTokens));
    }
    const auto calls = watch([&] { assign(); });
    EXPECT_EQ(calls.count("allocate") + calls.count("copy_to_device") + calls.count("synchronize"),
              0u);
  }

  void begin_step() {
    if (options_.batch == 1) return session(0).begin_step(kNumTokens, stream_.get());
    batch_.begin_step(kNumTokens, stream_.get());
  }
  void launch_layers() {
    for (int layer = 0; layer < model_.num_layers(); ++layer) {
      const Gemma4LayerArgs args = buffers_.args(layer);
      if (options_.batch == 1) {
        session(0).verify(layer, kNumTokens, args, stream_.get());
      } else {
        batch_.verify(layer, kNumTokens, args, stream_.get());
      }
    }
  }
  void commit(const std::vector<int>& num_tokens) {
    if (options_.batch == 1) return session(0).commit(num_tokens[0], stream_.get());
    batch_.commit(num_tokens, stream_.get());
  }

  // Returns how many of each sequence are going to be committed; the others are wild.
  std::vector<int> draw_tokens() {
    std::vector<int> commits;
    tokens_.assign(places_.size(), {});
    for (auto& tokens : tokens_) {
      commits.push_back(any(0, kNumTokens));
      for (int i = 0; i < kNumTokens; ++i) tokens.push_back({++last_id_, i >= commits.back()});
    }
    buffers_.upload(tokens_, stream_.get());
    return commits;
  }
  void push() {
    for (std::size_t b = 0; b < places_.size(); ++b) {
      for (const Token token : tokens_[b]) sequence(b).push(token);
    }
  }
  void settle(const std::vector<int>& commits) {
    for (std::size_t b = 0; b < places_.size(); ++b) {
      sequence(b).cut(sequence(b).length() - kNumTokens + commits[b]);
      EXPECT_EQ(session(b).length(), sequence(b).length());
    }
  }
  double error() {
    double largest = 0;
    for (int layer = 0; layer < model_.num_layers(); ++layer) {
      const auto output = buffers_.output(layer, stream_.get());
      for (std::size_t b = 0; b < places_.size(); ++b) {
        const double error =
            output_error(output, sequence(b), layer, static_cast<int>(b), kNumTokens,
                         sequence(b).length() - kNumTokens, {0, any(1, 3), kNumTokens - 1});
        EXPECT_LE(error, kMaxStepError)
            << "layer " << layer << " entry " << b << " of length " << sequence(b).length();
        largest = std::max(largest, error);
      }
    }
    return largest;
  }
  // The step once more, forgotten in between: it writes the same rows again.
  void expect_equal_bits_of_a_direct_launch() {
    std::vector<std::vector<std::uint16_t>> replayed;
    for (int layer = 0; layer < model_.num_layers(); ++layer) {
      replayed.push_back(buffers_.output(layer, stream_.get()));
    }
    commit(std::vector<int>(places_.size(), 0));
    buffers_.upload(tokens_, stream_.get());
    launch_layers();
    for (int layer = 0; layer < model_.num_layers(); ++layer) {
      EXPECT_TRUE(buffers_.output(layer, stream_.get()) ==
                  replayed[static_cast<std::size_t>(layer)])
          << "layer " << layer;
    }
  }

  // A rollback now and then, and a long one where a sequence has no room for the next step.
  void make_room() {
    for (std::size_t b = 0; b < places_.size(); ++b) {
      const int length = sequence(b).length();
      int to = any(0, 9) == 0 ? std::max(0, length - any(1, 6)) : length;
      if (to + kNumTokens > attention_.options().max_tokens) to -= 60;
      if (to == length) continue;
      session(b).rollback(length - to, stream_.get());
      sequence(b).cut(to);
      ++num_rollbacks_;
    }
  }

  PoisoningDevice& watched_;
  const ReplayOptions options_;
  const AppModel model_;
  Gemma4Attention attention_;
  const Stream stream_;
  StepBuffers buffers_, prompt_;
  Gemma4Batch batch_;
  std::vector<Gemma4Session> sessions_;
  std::vector<AppSequence> sequences_;
  std::vector<int> places_;  // of the batch: indices of sequences
  std::vector<std::vector<Token>> tokens_;
  std::mt19937 random_{11};
  std::uint32_t last_id_ = 0;
  int num_rollbacks_ = 0;
};

inline void expect_right_replays(Gemma4Bench& bench, const ReplayOptions& options) {
  Replays(bench, options).run();
}

}  // namespace attune
