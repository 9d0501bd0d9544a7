// Random schedules of several sequences: steps of any kind and size, of sessions and of batches,
// commits of any number, rollbacks, sequences that end and begin, pages that run out. After every
// step the outputs of all layers are compared with attention recomputed in double from the tokens
// that the sequence should have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/kv_rules.h"
#include "tests/runtime/gemma4_bench.h"

namespace attune {

struct ScheduleOptions {
  KvLayout global_layout = KvLayout::kContiguous;
  int num_pages = 0;
  Projections projections = Projections::kDense;
  std::uint32_t seed = 1;
  int num_steps = 100;
};

struct ScheduleReport {
  int steps = 0, tokens = 0, rejected = 0, rollbacks = 0, refused_rollbacks = 0, full = 0,
      out_of_pages = 0, closed = 0;
  double largest_error = 0, largest_lse_error = 0;
};

// Of one to three rows of a layer: q, k and v are rounded to bf16 (8.5e-3 in 2200 steps, of lse
// 1.2e-2). A key too many or too few among 300 makes several times as much.
constexpr double kMaxStepError = 1.25e-2;
constexpr double kMaxStepLseError = 3e-2;

class Schedule {
 public:
  Schedule(Gemma4Bench& bench, const ScheduleOptions& options)
      : device_(bench.device()),
        model_(small_geometry(options.global_layout)),
        attention_(bench.engine, model_.geometry, gemma4_options(options)),
        window_(model_.layer(0).window),
        ring_rows_(ring_rows(window_, attention_.options().max_prefill)),
        num_steps_(options.num_steps),
        random_(options.seed),
        stream_(device_.create_stream()) {
    model_.set_norm_weights(attention_);
    for (int size = 1; size <= kMaxBatch; ++size) {
      buffers_.emplace_back(device_, model_, size, attention_.options().max_prefill,
                            options.projections);
      batches_.push_back(attention_.make_batch(size));
    }
    buffers_.emplace_back(device_, model_, 1, attention_.options().max_prefill,
                          options.projections);  // of a step beside another one
    for (int i = 0; i < kNumSequences; ++i) places_.emplace_back(attention_.open_session(), model_);
  }

  ScheduleReport run() {
    while (report_.steps < num_steps_ && !::testing::Test::HasFailure()) act();
    for (Place& place : places_) place.session = Gemma4Session();
    batches_.clear();
    EXPECT_EQ(attention_.free_pages(), attention_.options().num_pages);
    return report_;
  }

 private:
  static constexpr int kNumSequences = 4;
  static constexpr int kMaxBatch = 3;

  struct Place {
    Place(Gemma4Session opened, const AppModel& model)
        : session(std::move(opened)), sequence(model) {}
    Gemma4Session session;
    AppSequence sequence;
    int oldest = 0;  // first position whose row the ring holds still
  };
  // What a step does to one sequence.
  struct Part {
    Place* place;
    int commit;
    std::vector<Token> tokens;
  };

  static Gemma4Options gemma4_options(const ScheduleOptions& options) {
    Gemma4Options made = small_options(options.global_layout);
    made.max_sequences = kNumSequences;
    made.batch_sizes = {2, 3};
    made.num_pages = options.num_pages;
    return made;
  }

  int any(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  bool chance(int percent) { return any(1, 100) <= percent; }
  Place& any_place() { return places_[static_cast<std::size_t>(any(0, kNumSequences - 1))]; }

  void act() {
    const int dice = any(0, 99);
    if (dice < 2) return reopen(any_place());
    if (dice < 13) return roll_back(any_place());
    if (dice < 35) return step_batch(any(2, kMaxBatch));
    if (dice < 45) return step_two();
    if (dice < 50) return step_batch(1);
    step_session(any_place());
  }

  void reopen(Place& place) {
    place.session = Gemma4Session();
    place = Place(attention_.open_session(), model_);
    ++report_.closed;
  }

  bool can_cut_to(const Place& place, int length) const {
    return length == 0 || std::max(length - window_ + 1, 0) >= place.oldest;
  }
  // Cuts anywhere that is allowed, after a try of one token more.
  void roll_back(Place& place) {
    const int length = place.sequence.length();
    int shortest = length;
    while (shortest > 1 && can_cut_to(place, shortest - 1)) --shortest;
    if (shortest > 1) {
      expect_refusal([&] { place.session.rollback(length - shortest + 1, stream_.get()); },
                     "at most " + std::to_string(length - shortest) + " tokens");
      ++report_.refused_rollbacks;
    }
    expect_refusal([&] { place.session.rollback(length + 1, stream_.get()); },
                   "roll back 0 to " + std::to_string(length));
    int to = any(std::min(shortest, length), length);
    if (chance(20)) to = shortest;
    if (chance(8)) to = 0;
    place.session.rollback(length - to, stream_.get());
    place.sequence.cut(to);
    if (to == 0) place.oldest = 0;
    EXPECT_EQ(place.session.length(), to);
    ++report_.rollbacks;
  }

  template <typename Body>
  void expect_refusal(const Body& body, const std::string& part) {
    try {
      body();
      ADD_FAILURE() << "no error with '" << part << "'";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }

  int largest_step(const Place& place) const {
    const Gemma4Options& limits = attention_.options();
    return std::min(limits.max_prefill, limits.max_tokens - place.sequence.length());
  }

  // A kind and a number of tokens; none, after the error, where a sequence is full.
  std::optional<std::pair<Way, int>> choose_step(const std::vector<Place*>& places) {
    int largest = attention_.options().max_prefill;
    for (Place* place : places) {
      EXPECT_EQ(place->session.largest_step(), largest_step(*place));
      largest = std::min(largest, largest_step(*place));
      if (largest > 0) continue;
      expect_refusal([&] { place->session.begin_step(1, stream_.get()); }, "the sequence is full");
      ++report_.full;
      roll_back(*place);
      return std::nullopt;
    }
    const int most_verify = std::min(attention_.options().max_verify, largest);
    if (chance(40) && most_verify >= 2) return {{Way::kVerify, any(2, most_verify)}};
    if (chance(40)) return {{Way::kDecode, 1}};
    const int sizes[] = {1, 2, 15, 16, 17, 33, largest, any(1, largest)};
    return {{Way::kPrefill, std::min(largest, sizes[any(0, 7)])}};
  }

  Part make_part(Place& place, int num_tokens) {
    Part part{&place, any(0, num_tokens), {}};
    if (chance(60)) part.commit = num_tokens;
    for (int i = 0; i < num_tokens; ++i) part.tokens.push_back({++last_id_, i >= part.commit});
    return part;
  }
  std::vector<Part> make_parts(const std::vector<Place*>& places, int num_tokens) {
    std::vector<Part> parts;
    for (Place* place : places) parts.push_back(make_part(*place, num_tokens));
    return parts;
  }

  // Begins the step; false, with nothing changed and pages freed, where there were too few.
  template <typename Sequences>
  bool begin(Sequences& sequences, const std::vector<Place*>& places, int num_tokens) {
    std::vector<int> lengths;
    for (const Place* place : places) lengths.push_back(place->session.length());
    const bool must_work = enough_pages(places, num_tokens);
    try {
      sequences.begin_step(num_tokens, stream_.get());
      EXPECT_TRUE(must_work);
      return true;
    } catch (const InvalidArgument& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("the cache has no free pages left"), std::string::npos) << message;
      EXPECT_FALSE(must_work) << message;
    }
    for (std::size_t i = 0; i < places.size(); ++i) {
      EXPECT_EQ(places[i]->session.length(), lengths[i]);
      EXPECT_EQ(places[i]->sequence.length(), lengths[i]);
    }
    ++report_.out_of_pages;
    // The longest sequence ends.
    reopen(*std::max_element(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
      return a.sequence.length() < b.sequence.length();
    }));
    return false;
  }
  bool enough_pages(const std::vector<Place*>& places, int num_tokens) const {
    if (!is_paged(attention_.options().global_layout)) return true;
    const std::size_t page_bytes = (attention_.cache_bytes() - kNumSequences * ring_bytes()) /
                                   static_cast<std::size_t>(attention_.options().num_pages);
    int needed = 0;
    for (const Place* place : places) {
      const int held = static_cast<int>((place->session.cache_bytes() - ring_bytes()) / page_bytes);
      const int page_size = attention_.options().page_size;
      needed += std::max(0, (place->session.length() + num_tokens - 1) / page_size + 1 - held);
    }
    return needed <= attention_.free_pages();
  }
  std::size_t ring_bytes() const {
    return std::size_t{2} * 2 * static_cast<std::size_t>(ring_rows_ * model_.layer(0).head_dim);
  }

  // The tokens are in the sequences from here on, as they are in the caches.
  void push(const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      for (const Token token : part.tokens) part.place->sequence.push(token);
      part.place->oldest = std::max(part.place->oldest, part.place->sequence.length() - ring_rows_);
    }
    ++report_.steps;
  }
  void upload(StepBuffers& buffers, const std::vector<Part>& parts) {
    std::vector<std::vector<Token>> tokens;
    for (const Part& part : parts) tokens.push_back(part.tokens);
    buffers.upload(tokens, stream_.get());
  }
  // First, last and any row of each part, in all layers.
  void compare(const StepBuffers& buffers, const std::vector<Part>& parts, Way way) {
    for (int layer = 0; layer < model_.num_layers(); ++layer) {
      const auto output = buffers.output(layer, stream_.get());
      const auto lse = buffers.lse(layer, stream_.get());
      for (std::size_t b = 0; b < parts.size(); ++b) {
        const int num_tokens = static_cast<int>(parts[b].tokens.size());
        const AppSequence& sequence = parts[b].place->sequence;
        const int first = sequence.length() - num_tokens;
        std::vector<int> rows = {0};
        if (num_tokens > 1) rows.push_back(num_tokens - 1);
        if (num_tokens > 2) rows.push_back(any(1, num_tokens - 2));
        const double error =
            output_error(output, sequence, layer, static_cast<int>(b), num_tokens, first, rows);
        EXPECT_LE(error, kMaxStepError)
            << "step " << report_.steps << " layer " << layer << " entry " << b << " of "
            << parts.size() << ", way " << static_cast<int>(way) << " of " << num_tokens
            << " tokens at " << first;
        report_.largest_error = std::max(report_.largest_error, error);
        const double off = lse_error(lse, sequence, layer, static_cast<int>(b), num_tokens, first,
                                     {num_tokens - 1});
        EXPECT_LE(off, kMaxStepLseError) << "step " << report_.steps << " layer " << layer;
        report_.largest_lse_error = std::max(report_.largest_lse_error, off);
      }
    }
  }
  void settle(const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      const int num_tokens = static_cast<int>(part.tokens.size());
      part.place->sequence.cut(part.place->sequence.length() - num_tokens + part.commit);
      EXPECT_EQ(part.place->session.length(), part.place->sequence.length());
      report_.tokens += num_tokens;
      report_.rejected += num_tokens - part.commit;
    }
  }

  void step_session(Place& place) {
    const auto step = choose_step({&place});
    if (!step) return;
    const auto [way, num_tokens] = *step;
    // The first layer's call begins the step too.
    if (chance(80) || !enough_pages({&place}, num_tokens)) {
      if (!begin(place.session, {&place}, num_tokens)) return;
    }
    const std::vector<Part> parts = make_parts({&place}, num_tokens);
    upload(buffers_[0], parts);
    for (int layer = 0; layer < model_.num_layers(); ++layer) {
      run_layer(place.session, way, layer, num_tokens, buffers_[0].args(layer), stream_.get());
    }
    push(parts);
    compare(buffers_[0], parts, way);
    place.session.commit(parts[0].commit, stream_.get());
    settle(parts);
  }

  void step_batch(int size) {
    std::vector<Place*> places;
    for (Place& place : places_) places.push_back(&place);
    std::shuffle(places.begin(), places.end(), random_);
    places.resize(static_cast<std::size_t>(size));
    const auto step = choose_step(places);
    if (!step) return;
    const auto [way, num_tokens] = *step;
    Gemma4Batch& batch = batches_[static_cast<std::size_t>(size - 1)];
    StepBuffers& buffers = buffers_[static_cast<std::size_t>(size - 1)];
    std::vector<Gemma4Session*> sessions;
    for (Place* place : places) sessions.push_back(&place->session);
    batch.assign(sessions, stream_.get());
    if (!begin(batch, places, num_tokens)) return;
    const std::vector<Part> parts = make_parts(places, num_tokens);
    upload(buffers, parts);
    for (int layer = 0; layer < model_.num_layers(); ++layer) {
      run_layer(batch, way, layer, num_tokens, buffers.args(layer), stream_.get());
    }
    push(parts);
    compare(buffers, parts, way);
    std::vector<int> commits;
    for (const Part& part : parts) commits.push_back(part.commit);
    batch.commit(commits, stream_.get());
    settle(parts);
  }

  // Two sequences whose layers take turns.
  void step_two() {
    Place& a = any_place();
    Place& b = any_place();
    if (&a == &b) return;
    const auto step_a = choose_step({&a});
    const auto step_b = step_a ? choose_step({&b}) : std::nullopt;
    if (!step_b || !begin(a.session, {&a}, step_a->second)) return;
    if (!enough_pages({&b}, step_b->second)) {
      // Nothing has run, but a step that was begun counts as written.
      a.oldest = std::max(a.oldest, a.sequence.length() + step_a->second - ring_rows_);
      a.session.commit(0, stream_.get());
      return;
    }
    const std::vector<Part> parts_a = make_parts({&a}, step_a->second);
    const std::vector<Part> parts_b = make_parts({&b}, step_b->second);
    upload(buffers_.front(), parts_a);
    upload(buffers_.back(), parts_b);
    for (int layer = 0; layer < model_.num_layers(); ++layer) {
      run_layer(a.session, step_a->first, layer, step_a->second, buffers_.front().args(layer),
                stream_.get());
      run_layer(b.session, step_b->first, layer, step_b->second, buffers_.back().args(layer),
                stream_.get());
    }
    b.session.commit(parts_b[0].commit, stream_.get());
    push(parts_a);
    compare(buffers_.front(), parts_a, step_a->first);
    push(parts_b);
    compare(buffers_.back(), parts_b, step_b->first);
    a.session.commit(parts_a[0].commit, stream_.get());
    settle(parts_a);
    settle(parts_b);
  }

  Device& device_;
  const AppModel model_;
  Gemma4Attention attention_;
  const int window_;
  const int ring_rows_;
  const int num_steps_;
  std::mt19937 random_;
  const Stream stream_;
  std::vector<StepBuffers> buffers_;  // of each batch size, and one more for one sequence
  std::vector<Gemma4Batch> batches_;
  std::vector<Place> places_;
  std::uint32_t last_id_ = 0;
  ScheduleReport report_;
};

inline void expect_right_schedule(Gemma4Bench& bench, const ScheduleOptions& options) {
  const ScheduleReport r = Schedule(bench, options).run();
  std::printf(
      "seed %u: %d steps, %d tokens, %d of them rejected, %d rollbacks and %d refused, %d times "
      "full, %d times out of pages, %d closed; largest relative L2 %.2e, of lse %.2e\n",
      options.seed, r.steps, r.tokens, r.rejected, r.rollbacks, r.refused_rollbacks, r.full,
      r.out_of_pages, r.closed, r.largest_error, r.largest_lse_error);
}

}  // namespace attune
