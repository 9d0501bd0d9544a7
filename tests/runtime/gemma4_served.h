// Sequences that tests of the Gemma 4 runtime serve: each with its tokens in double.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/gemma4_schedule.h"

namespace attune {

// An open session and what its caches should hold. A token follows from its position and from the
// sequence's number; those of a wild sequence are wild.
struct ServedSequence {
  ServedSequence(Gemma4Attention& attention, const AppModel& model, std::uint32_t of_number,
                 bool wild = false)
      : session(attention.open_session()), sequence(model), number(of_number), is_wild(wild) {}

  // The next tokens, of which those behind the first `kept` are drafts of another kind.
  std::vector<Token> next(int num_tokens, int kept) const {
    std::vector<Token> tokens;
    for (int i = 0; i < num_tokens; ++i) {
      const auto position = static_cast<std::uint32_t>(sequence.length() + i);
      tokens.push_back({number << 16 | position, i < kept ? is_wild : !is_wild});
    }
    return tokens;
  }
  void push(const std::vector<Token>& tokens) {
    for (const Token token : tokens) sequence.push(token);
  }
  void roll_back_to(int length, StreamHandle stream) {
    session.rollback(session.length() - length, stream);
    sequence.cut(length);
  }

  Gemma4Session session;
  AppSequence sequence;
  std::uint32_t number;
  bool is_wild;
};

// The calls of a step of a session or a batch.
template <typename Sequences>
void launch_layers(Sequences& on, Way way, const AppModel& model, const StepBuffers& buffers,
                   int num_tokens, StreamHandle stream) {
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    run_layer(on, way, layer, num_tokens, buffers.args(layer), stream);
  }
}
constexpr Way way_of(int num_tokens) { return num_tokens == 1 ? Way::kDecode : Way::kVerify; }

// Prefills in chunks of what `buffers`, of one sequence, have room for.
inline void grow_to(ServedSequence& served, int length, const AppModel& model, StepBuffers& buffers,
                    int largest_chunk, StreamHandle stream) {
  while (served.sequence.length() < length) {
    const int num_tokens = std::min(largest_chunk, length - served.sequence.length());
    const std::vector<Token> tokens = served.next(num_tokens, num_tokens);
    buffers.upload({tokens}, stream);
    launch_layers(served.session, Way::kPrefill, model, buffers, num_tokens, stream);
    served.session.commit(num_tokens, stream);
    served.push(tokens);
  }
}

// The outputs of a step's first and last token of every sequence, in all layers, against the
// sequences in double, to which the tokens were pushed.
inline void expect_right_outputs(const StepBuffers& buffers, const AppModel& model,
                                 const std::vector<const AppSequence*>& entries, int num_tokens,
                                 const std::string& step, StreamHandle stream) {
  std::vector<int> rows = {0};
  if (num_tokens > 1) rows.push_back(num_tokens - 1);
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    const auto output = buffers.output(layer, stream);
    const auto lse = buffers.lse(layer, stream);
    for (std::size_t b = 0; b < entries.size(); ++b) {
      const int first = entries[b]->length() - num_tokens;
      const int entry = static_cast<int>(b);
      EXPECT_LE(output_error(output, *entries[b], layer, entry, num_tokens, first, rows),
                kMaxStepError)
          << step << ": layer " << layer << ", entry " << b << ", first position " << first;
      EXPECT_LE(lse_error(lse, *entries[b], layer, entry, num_tokens, first, rows),
                kMaxStepLseError)
          << step << ": layer " << layer << ", entry " << b << ", first position " << first;
    }
  }
}

// A step's outputs in bits, of all layers.
inline std::vector<std::vector<std::uint16_t>> outputs_of(const StepBuffers& buffers,
                                                          const AppModel& model,
                                                          StreamHandle stream) {
  std::vector<std::vector<std::uint16_t>> outputs;
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    outputs.push_back(buffers.output(layer, stream));
  }
  return outputs;
}

}  // namespace attune
