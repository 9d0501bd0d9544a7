// Two streams at once, as docs/gemma4-attention.md admits it: steps of a session beside those of a
// batch, and of two batches, of sequences that have their pages already; of two sessions where each
// stream waits for the other. Else nothing waits within a round. Every step is right.
#pragma once

#include <cstdio>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/gemma4_served.h"

namespace attune {

// Whose steps the two streams have. Sessions share a workspace, a batch has one of its own.
enum class OnStreams { kSessionAndBatch, kTwoBatches, kTwoSessionsInTurns };
constexpr OnStreams kOnStreams[] = {OnStreams::kSessionAndBatch, OnStreams::kTwoBatches,
                                    OnStreams::kTwoSessionsInTurns};

struct TwoStreamsOptions {
  KvLayout global_layout = KvLayout::kContiguous;
  OnStreams on_streams = OnStreams::kSessionAndBatch;
  int num_rounds = 10;
};

class TwoStreams {
 public:
  TwoStreams(Gemma4Bench& bench, const TwoStreamsOptions& options)
      : options_(options),
        device_(bench.device()),
        model_(small_geometry(options.global_layout)),
        attention_(bench.engine, model_.geometry, gemma4_options(options)),
        prompt_(device_, model_, 1, kMaxPrefill, Projections::kDense) {
    model_.set_norm_weights(attention_);
    for (int i = 0; i < 2; ++i) {
      Lane& lane = lanes_.emplace_back();
      lane.stream = device_.create_stream();
      lane.batch = attention_.make_batch(1);
      lane.is_session = options.on_streams == OnStreams::kTwoSessionsInTurns ||
                        (options.on_streams == OnStreams::kSessionAndBatch && i == 0);
      for (int step = 0; step < kStepsPerRound; ++step) {
        lane.buffers.emplace_back(device_, model_, 1, kMaxPrefill, Projections::kFused);
      }
    }
    bench.engine.seal();
    for (int i = 0; i < kNumSequences; ++i) {
      served_.emplace_back(attention_, model_, static_cast<std::uint32_t>(i + 1));
      grow_to(served_.back(), 30 * i + 5, model_, prompt_, kMaxPrefill, lanes_[0].stream.get());
    }
  }

  void run() {
    for (int round = 0; round < options_.num_rounds && !::testing::Test::HasFailure(); ++round) {
      change_sequences(round);
      for (Lane& lane : lanes_) prepare(lane);
      // The calls of both take turns as they come.
      std::size_t last = 0;
      while (has_more(lanes_[0]) || has_more(lanes_[1])) {
        const auto next = static_cast<std::size_t>(any(0, 1));
        if (!has_more(lanes_[next])) continue;
        if (next != last && options_.on_streams == OnStreams::kTwoSessionsInTurns) synchronize();
        last = next;
        advance(lanes_[next]);
      }
      for (const Lane& lane : lanes_) compare(lane);
    }
    synchronize();
    std::printf("%d steps, %d of them replayed\n", num_steps_, num_replays_);
  }

 private:
  static constexpr int kNumSequences = 3;
  static constexpr int kStepsPerRound = 6;
  static constexpr int kMaxPrefill = 40;
  static constexpr int kReplayed = 5;  // tokens of a captured step

  struct Step {
    Way way;
    int num_tokens;
    int commit;
    bool is_replayed;
    AppSequence sequence;  // with the step's tokens
  };
  // What one stream does in a round.
  struct Lane {
    Stream stream;
    Gemma4Batch batch;
    bool is_session = false;
    std::size_t served = 0;
    std::vector<StepBuffers> buffers;  // of each step
    std::vector<Step> steps;
    std::size_t at = 0;  // the step under way
    int layer = 0;       // its next one
    // Of each step's buffers; of a session's own also by the sequence.
    std::map<std::pair<std::size_t, std::size_t>, Graph> graphs;
  };

  static Gemma4Options gemma4_options(const TwoStreamsOptions& options) {
    Gemma4Options made = small_options(options.global_layout);
    made.max_tokens = 600;
    made.max_prefill = kMaxPrefill;
    made.max_verify = kReplayed;
    made.max_sequences = kNumSequences;
    return made;
  }
  int any(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  ServedSequence& served_by(const Lane& lane) { return served_[lane.served]; }

  // Of the session or the batch.
  template <typename Body>
  void with(Lane& lane, const Body& body) {
    if (lane.is_session) {
      body(served_by(lane).session);
    } else {
      body(lane.batch);
    }
  }
  void commit(Lane& lane, int num_tokens) {
    if (lane.is_session) {
      served_by(lane).session.commit(num_tokens, lane.stream.get());
    } else {
      lane.batch.commit(std::vector<int>{num_tokens}, lane.stream.get());
    }
  }

  void synchronize() {
    for (const Lane& lane : lanes_) device_.synchronize(lane.stream.get());
  }
  // Sequences pass from one stream to the other, and have pages for all tokens to come: both wait
  // for that.
  void change_sequences(int round) {
    synchronize();
    for (ServedSequence& served : served_) {
      const int needed = kStepsPerRound * kMaxPrefill;
      if (served.session.length() + needed > attention_.options().max_tokens) {
        // To nothing: a shorter cut could need rows that the rings no longer have.
        served.roll_back_to(0, lanes_[0].stream.get());
      }
      served.session.reserve(attention_.options().max_tokens - served.session.length(),
                             lanes_[0].stream.get());
    }
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      Lane& lane = lanes_[i];
      lane.served = (static_cast<std::size_t>(round) + i) % kNumSequences;
      Gemma4Session* const session = &served_by(lane).session;
      lane.batch.assign(std::span(&session, 1), lanes_[0].stream.get());
    }
    synchronize();
  }

  // The steps of a round, with their tokens on the device. In double it has happened already.
  void prepare(Lane& lane) {
    lane.steps.clear();
    lane.at = 0;
    for (std::size_t i = 0; i < kStepsPerRound; ++i) {
      const bool is_replayed = any(0, 2) == 0;
      const bool is_prefill = !is_replayed && any(0, 2) == 0;
      const int num_tokens = is_replayed  ? kReplayed
                             : is_prefill ? any(1, kMaxPrefill)
                                          : any(1, kReplayed);
      const Way way = is_prefill ? Way::kPrefill : way_of(num_tokens);
      ServedSequence& served = served_by(lane);
      Step step{way, num_tokens, any(0, num_tokens), is_replayed, served.sequence};
      const std::vector<Token> tokens = served.next(num_tokens, step.commit);
      served.push(tokens);
      step.sequence = served.sequence;
      served.sequence.cut(served.sequence.length() - num_tokens + step.commit);
      lane.buffers[i].upload({tokens}, lane.stream.get());
      if (is_replayed) capture(lane, i);
      lane.steps.push_back(std::move(step));
    }
  }
  void capture(Lane& lane, std::size_t step) {
    Graph& graph = graph_of(lane, step);
    if (graph) return;
    with(lane, [&](auto& on) {
      on.begin_step(kReplayed, lane.stream.get());
      graph = device_.capture(lane.stream.get(), [&] {
        launch_layers(on, Way::kVerify, model_, lane.buffers[step], kReplayed, lane.stream.get());
      });
    });
    commit(lane, 0);
  }
  Graph& graph_of(Lane& lane, std::size_t step) {
    return lane.graphs[{step, lane.is_session ? lane.served : 0}];
  }

  static bool has_more(const Lane& lane) { return lane.at < lane.steps.size(); }
  // The next layer's call, or a whole step that is replayed.
  void advance(Lane& lane) {
    const Step& step = lane.steps[lane.at];
    with(lane, [&](auto& on) {
      if (step.is_replayed) {
        on.begin_step(kReplayed, lane.stream.get());
        device_.launch(graph_of(lane, lane.at), lane.stream.get());
        lane.layer = model_.num_layers();
        ++num_replays_;
      } else {
        run_layer(on, step.way, lane.layer, step.num_tokens, lane.buffers[lane.at].args(lane.layer),
                  lane.stream.get());
        ++lane.layer;
      }
    });
    if (lane.layer < model_.num_layers()) return;
    commit(lane, step.commit);
    ++num_steps_;
    ++lane.at;
    lane.layer = 0;
  }

  void compare(const Lane& lane) {
    for (std::size_t i = 0; i < lane.steps.size(); ++i) {
      const Step& step = lane.steps[i];
      const std::string text = std::string(lane.is_session ? "session" : "batch") + ", step " +
                               std::to_string(i) + " of the round, of " +
                               std::to_string(step.num_tokens);
      expect_right_outputs(lane.buffers[i], model_, {&step.sequence}, step.num_tokens, text,
                           lane.stream.get());
    }
  }

  const TwoStreamsOptions options_;
  Device& device_;
  const AppModel model_;
  Gemma4Attention attention_;
  StepBuffers prompt_;
  std::vector<Lane> lanes_;
  std::vector<ServedSequence> served_;
  std::mt19937 random_{5};
  int num_steps_ = 0, num_replays_ = 0;
};

inline void expect_right_steps_on_two_streams(Gemma4Bench& bench,
                                              const TwoStreamsOptions& options) {
  TwoStreams(bench, options).run();
}

}  // namespace attune
