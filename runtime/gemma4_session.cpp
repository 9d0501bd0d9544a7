#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "runtime/gemma4_state.h"
#include "runtime/kv_rules.h"

namespace attune {

Gemma4Session::State::State(std::shared_ptr<Gemma4Attention::State> of, int at)
    : model(std::move(of)), place(at) {
  model->places_in_use[place] = true;
}

Gemma4Session::State::~State() { end(); }

void Gemma4Session::State::end() noexcept {
  if (has_ended) return;
  has_ended = true;
  open_tokens = 0;
  give_back_pages(0);
  model->places_in_use[place] = false;
}

void Gemma4Session::State::hold_pages_for(int tokens) {
  const int wanted = model->num_pages_of(tokens);
  const int had = static_cast<int>(pages.size());
  if (wanted <= had) return;
  model->pages.grow(&pages, wanted);
  try {
    for (int i = had; i < wanted; ++i) model->integers->set(model->page_at(place, i), pages[i]);
  } catch (...) {
    give_back_pages(had);
    throw;
  }
}

// What the block table says of them on the device is not read.
void Gemma4Session::State::give_back_pages(int kept) noexcept {
  for (int i = kept; i < static_cast<int>(pages.size()); ++i) {
    model->integers->forget(model->page_at(place, i));
  }
  model->pages.shrink(&pages, kept);
}

void Gemma4Session::State::require_not_ended() const {
  if (!has_ended) return;
  throw InvalidArgument("a session of the batch was closed", fmt::format("length={}", length),
                        "assign open sessions to the batch");
}

void Gemma4Session::State::open(int num_tokens, const void* by) {
  require_not_ended();
  if (open_tokens != 0) {
    throw InvalidArgument(
        "a step is open already",
        fmt::format("open_tokens={} num_tokens={} length={}", open_tokens, num_tokens, length),
        "commit it first; commit(0) forgets it");
  }
  const int largest = model->largest_step(length);
  if (num_tokens < 1 || num_tokens > largest) {
    const bool full = num_tokens > model->options.max_tokens - length;
    throw InvalidArgument(
        "the step does not fit",
        fmt::format("num_tokens={} length={} largest={} max_tokens={}", num_tokens, length, largest,
                    model->options.max_tokens),
        full ? "the sequence is full: roll back, or raise max_tokens"
             : fmt::format("take at most {} tokens: more would overwrite keys that their first "
                           "tokens still see",
                           largest));
  }
  pages_before_step = static_cast<int>(pages.size());
  hold_pages_for(length + num_tokens);
  open_tokens = num_tokens;
  opened_by = by;
  written_before_step = written;
  written = std::max(written, length + num_tokens);
}

void Gemma4Session::State::abandon() noexcept {
  open_tokens = 0;
  written = written_before_step;
  give_back_pages(pages_before_step);
}

// A session and each of its batches have lengths of their own in device memory, written when they
// open a step: who has not opened it would run it at an older length.
void Gemma4Session::State::require_opener(const void* by) const {
  if (open_tokens == 0 || opened_by == by) return;
  throw InvalidArgument("another object has opened this sequence's step",
                        fmt::format("open_tokens={} length={}", open_tokens, length),
                        "run and commit a step on the session or batch that began it");
}

void Gemma4Session::State::require_step(int num_tokens, const void* by) const {
  require_not_ended();
  require_opener(by);
  if (open_tokens == num_tokens) return;
  throw InvalidArgument("the layers of a step have the same number of tokens",
                        fmt::format("num_tokens={} open_tokens={}", num_tokens, open_tokens),
                        "commit the open step before the next one");
}

void Gemma4Session::State::require_commit(int num_tokens, const void* by) const {
  require_opener(by);
  if (open_tokens == 0) {
    throw InvalidArgument("there is no step to commit",
                          fmt::format("num_tokens={} length={}", num_tokens, length),
                          "run a step first, or begin_step where a graph runs it");
  }
  if (num_tokens < 0 || num_tokens > open_tokens) {
    throw InvalidArgument("cannot commit more tokens than the step has",
                          fmt::format("num_tokens={} open_tokens={}", num_tokens, open_tokens),
                          fmt::format("commit 0 to {}", open_tokens));
  }
}

void Gemma4Session::State::close(int num_tokens) {
  length += num_tokens;
  open_tokens = 0;
}

Gemma4Session Gemma4Attention::open_session() {
  const auto free = std::find(state_->places_in_use.begin(), state_->places_in_use.end(), false);
  if (free == state_->places_in_use.end()) {
    throw InvalidArgument("all sessions of the model are open",
                          fmt::format("max_sequences={}", state_->options.max_sequences),
                          "close one, or raise max_sequences");
  }
  Gemma4Session session;
  session.state_ = std::make_shared<Gemma4Session::State>(
      state_, static_cast<int>(free - state_->places_in_use.begin()));
  return session;
}

Gemma4Session::Gemma4Session(Gemma4Session&&) noexcept = default;
Gemma4Session& Gemma4Session::operator=(Gemma4Session&& other) noexcept {
  Gemma4Session moved(std::move(other));
  std::swap(state_, moved.state_);
  return *this;
}
Gemma4Session::~Gemma4Session() {
  if (state_ != nullptr) state_->end();
}

// Every layer's call: the first one of a step opens it.
void Gemma4Session::run(int layer, StepKind kind, int num_tokens, const Gemma4LayerArgs& args,
                        void* stream) {
  State& s = required(state_, "session");
  s.model->require_layer(layer);
  if (s.open_tokens == 0) begin_step(num_tokens, stream);
  s.require_step(num_tokens, &s);
  const StepTarget target{1, s.model->integers->ptr(s.model->length_at(s.place)),
                          s.model->integers->ptr(s.model->place_at(s.place)), &s.model->memory};
  s.model->run(target, layer, kind, num_tokens, args, stream);
}

void Gemma4Session::prefill(int layer, int num_tokens, const Gemma4LayerArgs& args, void* stream) {
  const State& s = required(state_, "session");
  s.model->require_prefill(num_tokens);
  run(layer, StepKind::kPrefill, num_tokens, args, stream);
}

void Gemma4Session::decode(int layer, const Gemma4LayerArgs& args, void* stream) {
  run(layer, StepKind::kDecode, 1, args, stream);
}

void Gemma4Session::verify(int layer, int num_tokens, const Gemma4LayerArgs& args, void* stream) {
  const State& s = required(state_, "session");
  s.model->require_verify(num_tokens);
  run(layer, kind_of_verify(num_tokens), num_tokens, args, stream);
}

void Gemma4Session::begin_step(int num_tokens, void* stream) {
  State& s = required(state_, "session");
  s.open(num_tokens, &s);
  try {
    // A batch commits without it.
    s.model->integers->set(s.model->length_at(s.place), s.length);
    s.model->integers->flush(stream);
  } catch (...) {
    s.abandon();
    throw;
  }
}

void Gemma4Session::commit(int num_tokens, void* stream) {
  State& s = required(state_, "session");
  if (num_tokens != 0) s.model->require_no_capture(stream);
  s.require_commit(num_tokens, &s);
  s.close(num_tokens);
  s.model->integers->set(s.model->length_at(s.place), s.length);
  s.model->integers->flush(stream);
}

void Gemma4Session::rollback(int num_tokens, void* stream) {
  State& s = required(state_, "session");
  if (s.open_tokens != 0) {
    throw InvalidArgument("a step is open", fmt::format("open_tokens={}", s.open_tokens),
                          "commit it before a rollback; commit(0) forgets it");
  }
  if (num_tokens < 0 || num_tokens > s.length) {
    throw InvalidArgument("cannot roll back more tokens than there are",
                          fmt::format("num_tokens={} length={}", num_tokens, s.length),
                          fmt::format("roll back 0 to {}", s.length));
  }
  s.model->require_no_capture(stream);
  const int length = s.length - num_tokens;
  for (const LayerKernels& one : s.model->kernels) {
    if (one.ring_rows == 0) continue;
    if (can_cut(length, s.written, one.ring_rows, one.geometry.window)) continue;
    const int shortest = shortest_cut(s.written, one.ring_rows, one.geometry.window);
    throw InvalidArgument(
        "the sliding layers no longer hold the window of that position",
        fmt::format("num_tokens={} length={} ring_rows={} window={}", num_tokens, s.length,
                    one.ring_rows, one.geometry.window),
        fmt::format("roll back at most {} tokens, or all of them", s.length - shortest));
  }
  s.length = length;
  // What lies above an empty sequence is of no interest: it is as a new one.
  if (length == 0) s.written = 0;
  s.model->pages.shrink(&s.pages, s.model->num_pages_of(length));
  s.model->integers->set(s.model->length_at(s.place), s.length);
  s.model->integers->flush(stream);
}

void Gemma4Session::reserve(int num_tokens, void* stream) {
  State& s = required(state_, "session");
  const int room = s.model->options.max_tokens - s.length;
  if (num_tokens < 0 || num_tokens > room) {
    throw InvalidArgument("cannot reserve pages beyond the longest sequence",
                          fmt::format("num_tokens={} length={}", num_tokens, s.length),
                          fmt::format("reserve 0 to {}, or raise max_tokens", room));
  }
  const int had = static_cast<int>(s.pages.size());
  s.hold_pages_for(s.length + num_tokens);
  try {
    s.model->integers->set(s.model->length_at(s.place), s.length);
    s.model->integers->flush(stream);
  } catch (...) {
    s.give_back_pages(had);
    throw;
  }
}

int Gemma4Session::length() const { return required(state_, "session").length; }

int Gemma4Session::largest_step() const {
  const State& s = required(state_, "session");
  return s.model->largest_step(s.length);
}

std::size_t Gemma4Session::cache_bytes() const {
  const State& s = required(state_, "session");
  std::size_t bytes = s.pages.size() * s.model->page_bytes();
  for (const auto& [layer, cache] : s.model->caches) bytes += cache.sequence_bytes;
  return bytes;
}

}  // namespace attune
