// Places that pass from one sequence to another under captured graphs: a graph of a batch serves
// whoever holds the place, at its length, with its pages and its rows of the ring.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/gemma4_served.h"

namespace attune {

class ReusedPlaces {
 public:
  ReusedPlaces(Gemma4Bench& bench, KvLayout global_layout)
      : device_(bench.device()),
        model_(small_geometry(global_layout)),
        attention_(bench.engine, model_.geometry, gemma4_options(global_layout)),
        stream_(device_.create_stream()),
        buffers_(device_, model_, kBatch, kNumTokens, Projections::kFused),
        prompt_(device_, model_, 1, kMaxPrefill, Projections::kDense),
        batch_(attention_.make_batch(kBatch)) {
    model_.set_norm_weights(attention_);
    bench.engine.seal();
    // What the sequence that ends leaves behind is wild: whoever sees it is far off.
    const int lengths[] = {33, 150, 21, 5};
    for (int i = 0; i <= kBatch; ++i) grow(*open(i == 1), lengths[i]);
  }

  void run() {
    assign({0, 1, 2});
    const Graph before = capture();
    replay(before, 2);

    // All places but the one of the sequence that ends are taken, so the next one has that. Of its
    // pages some have gone to a sequence that is not in the batch.
    reopen(1);
    assign({0, 1, 2});
    EXPECT_EQ(served_[1]->session.length(), 0);
    replay(before, 2);  // from an empty sequence on
    const Graph after = capture();
    replay(after, 12);
    replay(before, 2);

    // The place of another entry, and the entries in another order.
    reopen(0);
    grow(*served_[0], 18);
    assign({2, 1, 0});
    replay(after, 3);
    reopen(1);
    reopen(2);
    assign({1, 3, 2});
    replay(before, 3);
    replay(after, 3);
    replay_of_a_session();
    EXPECT_GT(num_replays_, 0);
  }

 private:
  static constexpr int kBatch = 3;
  static constexpr int kNumTokens = 5;
  static constexpr int kMaxPrefill = 40;

  static Gemma4Options gemma4_options(KvLayout global_layout) {
    Gemma4Options made = small_options(global_layout);
    made.max_prefill = kMaxPrefill;
    made.max_sequences = kBatch + 1;
    made.batch_sizes = {kBatch};
    return made;
  }

  std::unique_ptr<ServedSequence>& open(bool is_wild) {
    return served_.emplace_back(
        std::make_unique<ServedSequence>(attention_, model_, ++num_opened_, is_wild));
  }
  void grow(ServedSequence& served, int length) {
    grow_to(served, length, model_, prompt_, kMaxPrefill, stream_.get());
  }
  // The sequence ends, one beside the batch takes up some of its pages, and another one takes its
  // place.
  void reopen(std::size_t idx) {
    served_[idx].reset();
    grow(*served_.back(), served_.back()->sequence.length() + 40);
    served_[idx] = std::make_unique<ServedSequence>(attention_, model_, ++num_opened_);
  }
  void assign(const std::vector<std::size_t>& entries) {
    entries_ = entries;
    std::vector<Gemma4Session*> sessions;
    for (const std::size_t idx : entries_) sessions.push_back(&served_[idx]->session);
    batch_.assign(sessions, stream_.get());
  }

  Graph capture() {
    batch_.begin_step(kNumTokens, stream_.get());
    Graph graph = device_.capture(stream_.get(), [&] {
      launch_layers(batch_, Way::kVerify, model_, buffers_, kNumTokens, stream_.get());
    });
    batch_.commit(std::vector<int>(kBatch, 0), stream_.get());
    return graph;
  }
  // Of each sequence another number of tokens is kept, and all of them in the end.
  void replay(const Graph& graph, int num_replays) {
    for (int i = 0; i < num_replays; ++i, ++num_replays_) {
      std::vector<std::vector<Token>> tokens;
      std::vector<int> commits;
      for (int b = 0; b < kBatch; ++b) {
        commits.push_back(b == 1 ? kNumTokens : (num_replays_ + 2 * b) % (kNumTokens + 1));
        tokens.push_back(entry(b).next(kNumTokens, commits.back()));
      }
      buffers_.upload(tokens, stream_.get());
      batch_.begin_step(kNumTokens, stream_.get());
      device_.launch(graph, stream_.get());
      std::vector<const AppSequence*> sequences;
      for (int b = 0; b < kBatch; ++b) {
        entry(b).push(tokens[static_cast<std::size_t>(b)]);
        sequences.push_back(&entry(b).sequence);
      }
      expect_right_outputs(buffers_, model_, sequences, kNumTokens,
                           "replay " + std::to_string(num_replays_), stream_.get());
      batch_.commit(commits, stream_.get());
      for (int b = 0; b < kBatch; ++b) settle(entry(b), commits[static_cast<std::size_t>(b)]);
    }
  }
  ServedSequence& entry(int b) { return *served_[entries_[static_cast<std::size_t>(b)]]; }
  void settle(ServedSequence& served, int commit) {
    served.sequence.cut(served.sequence.length() - kNumTokens + commit);
    EXPECT_EQ(served.session.length(), served.sequence.length());
  }

  // A graph of a session that took the place of a longer one.
  void replay_of_a_session() {
    grow(*served_[1], 90);
    reopen(1);
    ServedSequence& served = *served_[1];
    served.session.begin_step(kNumTokens, stream_.get());
    const Graph graph = device_.capture(stream_.get(), [&] {
      launch_layers(served.session, Way::kVerify, model_, prompt_, kNumTokens, stream_.get());
    });
    served.session.commit(0, stream_.get());
    for (int i = 0; i < 4; ++i) {
      const std::vector<Token> tokens = served.next(kNumTokens, kNumTokens - i % 2);
      prompt_.upload({tokens}, stream_.get());
      served.session.begin_step(kNumTokens, stream_.get());
      device_.launch(graph, stream_.get());
      served.push(tokens);
      expect_right_outputs(prompt_, model_, {&served.sequence}, kNumTokens,
                           "replay of a session " + std::to_string(i), stream_.get());
      served.session.commit(kNumTokens - i % 2, stream_.get());
      settle(served, kNumTokens - i % 2);
    }
  }

  Device& device_;
  const AppModel model_;
  Gemma4Attention attention_;
  const Stream stream_;
  StepBuffers buffers_, prompt_;
  Gemma4Batch batch_;
  std::vector<std::unique_ptr<ServedSequence>>
      served_;                        // the last one is beside the batch at first
  std::vector<std::size_t> entries_;  // of the batch
  std::uint32_t num_opened_ = 0;
  int num_replays_ = 0;
};

inline void expect_right_replays_in_reused_places(Gemma4Bench& bench, KvLayout global_layout) {
  ReusedPlaces(bench, global_layout).run();
}

}  // namespace attune
