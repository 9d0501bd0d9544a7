#include <algorithm>

#include <fmt/format.h>

#include "runtime/gemma4_state.h"

namespace attune {

StepTarget Gemma4Batch::State::target() const {
  return {size, integers->ptr(), integers->ptr(static_cast<std::size_t>(size)), &memory};
}

void Gemma4Batch::State::write_lengths(StreamHandle stream) {
  for (int b = 0; b < size; ++b) {
    integers->set(static_cast<std::size_t>(b), sessions[b]->length);
    integers->set(static_cast<std::size_t>(size + b), sessions[b]->place);
  }
  integers->flush(stream);
}

Gemma4Batch Gemma4Attention::make_batch(int size) {
  const std::vector<int>& sizes = state_->options.batch_sizes;
  if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) {
    throw InvalidArgument("no kernels were prepared for this batch size",
                          fmt::format("size={}", size),
                          fmt::format("batch_sizes are {}", fmt::join(sizes, ", ")));
  }
  Gemma4Batch batch;
  batch.state_ = std::make_shared<Gemma4Batch::State>();
  Gemma4Batch::State& s = *batch.state_;
  s.model = state_;
  s.size = size;
  s.memory = state_->make_step_memory(size);
  s.integers = std::make_unique<StateBuffer>(state_->device, state_->writer,
                                             2 * static_cast<std::size_t>(size));
  return batch;
}

void Gemma4Batch::assign(std::span<Gemma4Session* const> sessions, void* stream) {
  State& s = required(state_, "batch");
  if (static_cast<int>(sessions.size()) != s.size) {
    throw InvalidArgument("a batch takes as many sessions as its size",
                          fmt::format("sessions={} size={}", sessions.size(), s.size));
  }
  std::vector<std::shared_ptr<Gemma4Session::State>> assigned;
  for (const Gemma4Session* session : sessions) {
    if (session == nullptr || session->state_ == nullptr || session->state_->model != s.model) {
      throw InvalidArgument("a batch takes open sessions of its own model",
                            fmt::format("session number {}", assigned.size()));
    }
    if (std::find(assigned.begin(), assigned.end(), session->state_) != assigned.end()) {
      throw InvalidArgument("a session is in the batch twice",
                            fmt::format("session number {}", assigned.size()),
                            "their tokens would overwrite each other");
    }
    if (session->state_->open_tokens != 0) {
      throw InvalidArgument("a session has an open step",
                            fmt::format("session number {} open_tokens={}", assigned.size(),
                                        session->state_->open_tokens),
                            "commit it first");
    }
    assigned.push_back(session->state_);
  }
  s.sessions.swap(assigned);
  try {
    s.write_lengths(stream);
  } catch (...) {
    s.sessions.swap(assigned);
    for (std::size_t at = 0; at < 2 * static_cast<std::size_t>(s.size); ++at)
      s.integers->forget(at);
    throw;
  }
}

void Gemma4Batch::begin_step(int num_tokens, void* stream) {
  State& s = required(state_, "batch");
  if (s.sessions.empty()) {
    throw InvalidArgument("the batch has no sessions", fmt::format("size={}", s.size),
                          "assign them first");
  }
  std::size_t opened = 0;
  try {
    for (; opened < s.sessions.size(); ++opened) s.sessions[opened]->open(num_tokens, &s);
    s.model->integers->flush(stream);
    s.write_lengths(stream);
  } catch (...) {
    for (std::size_t i = 0; i < opened; ++i) s.sessions[i]->abandon();
    throw;
  }
}

void Gemma4Batch::run(int layer, StepKind kind, int num_tokens, const Gemma4LayerArgs& args,
                      void* stream) {
  State& s = required(state_, "batch");
  s.model->require_layer(layer);
  if (s.sessions.empty() || s.sessions.front()->open_tokens == 0) begin_step(num_tokens, stream);
  for (const auto& session : s.sessions) session->require_step(num_tokens, &s);
  s.model->run(s.target(), layer, kind, num_tokens, args, stream);
}

void Gemma4Batch::prefill(int layer, int num_tokens, const Gemma4LayerArgs& args, void* stream) {
  required(state_, "batch").model->require_prefill(num_tokens);
  run(layer, StepKind::kPrefill, num_tokens, args, stream);
}

void Gemma4Batch::decode(int layer, const Gemma4LayerArgs& args, void* stream) {
  run(layer, StepKind::kDecode, 1, args, stream);
}

void Gemma4Batch::verify(int layer, int num_tokens, const Gemma4LayerArgs& args, void* stream) {
  required(state_, "batch").model->require_verify(num_tokens);
  run(layer, kind_of_verify(num_tokens), num_tokens, args, stream);
}

void Gemma4Batch::commit(std::span<const int> num_tokens, void* stream) {
  State& s = required(state_, "batch");
  if (s.sessions.empty() || num_tokens.size() != s.sessions.size()) {
    throw InvalidArgument(
        "a batch commits a number of tokens for each session",
        fmt::format("num_tokens={} sessions={}", num_tokens.size(), s.sessions.size()),
        "assign the sessions, and commit 0 where nothing is to be kept");
  }
  const auto changes = [](int count) { return count != 0; };
  if (std::any_of(num_tokens.begin(), num_tokens.end(), changes)) {
    s.model->require_no_capture(stream);
  }
  // All or none: a wrong number for one session must not commit the others. What was closed since
  // has nothing to commit.
  for (std::size_t b = 0; b < s.sessions.size(); ++b) {
    if (!s.sessions[b]->has_ended) s.sessions[b]->require_commit(num_tokens[b], &s);
  }
  for (std::size_t b = 0; b < s.sessions.size(); ++b) {
    if (!s.sessions[b]->has_ended) s.sessions[b]->close(num_tokens[b]);
  }
  s.write_lengths(stream);
}

int Gemma4Batch::size() const { return required(state_, "batch").size; }

int Gemma4Batch::largest_step() const {
  const State& s = required(state_, "batch");
  int largest = s.model->max_step();
  for (const auto& session : s.sessions) {
    largest = std::min(largest, s.model->largest_step(session->length));
  }
  return largest;
}

std::size_t Gemma4Batch::workspace_bytes() const {
  return required(state_, "batch").memory.bytes();
}

}  // namespace attune
