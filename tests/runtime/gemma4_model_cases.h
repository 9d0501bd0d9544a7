// The whole tiny model on a device: against golden logits that a public implementation computed in
// fp32, and its steps against each other.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/checkpoint.h"
#include "runtime/gemma4_model.h"
#include "tests/support/gemma4_model_oracle.h"
#include "tests/support/test_data.h"

namespace attune {

struct TinyModel {
  TinyModel() : checkpoint(Checkpoint::open(test_data("gemma4-tiny"))) {}

  static Gemma4ModelOptions options() {
    Gemma4ModelOptions options;
    options.attention.max_tokens = 256;
    options.attention.max_prefill = 40;
    options.attention.max_verify = 16;
    options.attention.invariant = true;
    return options;
  }
  Gemma4Model on(Engine& engine, const Gemma4ModelOptions& asked = options()) const {
    return Gemma4Model(engine, checkpoint.config, checkpoint.weights, asked);
  }

  Checkpoint checkpoint;
};

// Logits behind `rows` tokens of the last step.
inline std::vector<float> read_logits(const Gemma4Model& model, int rows) {
  std::vector<float> logits(static_cast<std::size_t>(rows) * model.config().vocab_size);
  model.device().copy_to_host(std::as_writable_bytes(std::span(logits)), model.logits(), nullptr);
  return logits;
}
inline std::vector<int> read_best(const Gemma4Model& model, int rows) {
  std::vector<int> best(static_cast<std::size_t>(rows));
  model.device().copy_to_host(std::as_writable_bytes(std::span(best)), model.best(), nullptr);
  return best;
}

// Verifies `ids` and commits `keep` of them; the logits behind all of them.
inline std::vector<float> verify(Gemma4Model& model, Gemma4Session& session,
                                 std::span<const int> ids, int keep) {
  const int count = static_cast<int>(ids.size());
  model.set_tokens(ids, nullptr);
  model.verify(session, count, nullptr);
  session.commit(keep, nullptr);
  return read_logits(model, count);
}

struct GoldenLogits {
  GoldenLogits() : file(test_data("gemma4-tiny") / "golden.safetensors") {}
  std::vector<int> ids() const { return elements<int>(file.at("input_ids")); }
  oracle::Rows logits(const std::string& name) const {
    return oracle::widen(floats_of(file.at(name)));
  }
  Safetensors file;
};

// Steps of all sizes give logits that are no further from the fp32 run than those of that
// implementation's own bf16 run, and the same best token wherever the margin allows.
inline void expect_golden_logits(Engine& engine) {
  const TinyModel tiny;
  const GoldenLogits golden;
  Gemma4Model model = tiny.on(engine);
  Gemma4Session session = model.open_session();
  const std::vector<int> ids = golden.ids();
  oracle::Rows logits;
  std::vector<int> best;
  for (std::size_t at = 0, step = 0; at < ids.size(); ++step) {
    const std::size_t count = std::min(ids.size() - at, 1 + step * 7 % 16);
    for (const float value :
         verify(model, session, std::span(ids).subspan(at, count), static_cast<int>(count))) {
      logits.push_back(value);
    }
    for (const int id : read_best(model, static_cast<int>(count))) best.push_back(id);
    at += count;
  }
  const oracle::Rows expected = golden.logits("logits");
  const double error = relative_l2(logits, expected);
  const double bf16_error = relative_l2(golden.logits("logits_bf16_compute"), expected);
  std::printf("logits: relative L2 %.3g, of the golden bf16 run %.3g\n", error, bf16_error);
  EXPECT_LE(error, bf16_error);

  const std::size_t vocab = tiny.checkpoint.config.vocab_size;
  int num_decided = 0;
  for (std::size_t row = 0; row < ids.size(); ++row) {
    const std::span<const double> right(expected.data() + row * vocab, vocab);
    const std::span<const double> given(logits.data() + row * vocab, vocab);
    EXPECT_EQ(best[row], oracle::argmax(given)) << row;
    double most_error = 0;
    for (std::size_t i = 0; i < vocab; ++i) {
      most_error = std::max(most_error, std::abs(right[i] - given[i]));
    }
    std::vector<double> sorted(right.begin(), right.end());
    std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater());
    if (sorted[0] - sorted[1] <= 3 * most_error) continue;
    ++num_decided;
    EXPECT_EQ(best[row], oracle::argmax(right)) << row;
  }
  std::printf("best token: %d of %zu rows are decided\n", num_decided, ids.size());
  EXPECT_GT(num_decided, static_cast<int>(ids.size()) / 3);
}

// A prompt, then tokens of which some are drafted wrong: the bits of the logits are those of plain
// decoding, whatever was verified with them.
inline void expect_verify_is_decode(Engine& engine, int num_tokens) {
  const TinyModel tiny;
  Gemma4ModelOptions options = TinyModel::options();
  options.attention.max_sequences = 2;
  Gemma4Model model = tiny.on(engine, options);
  const std::vector<int> prompt = {2, 17, 250, 33, 8, 199, 64, 5, 101, 77, 310, 12, 45};
  const auto start = [&] {
    Gemma4Session session = model.open_session();
    model.set_tokens(prompt, nullptr);
    model.prefill(session, static_cast<int>(prompt.size()), nullptr);
    session.commit(static_cast<int>(prompt.size()), nullptr);
    return session;
  };
  Gemma4Session plain = start();
  const int anchor = read_best(model, 1).front();
  std::vector<int> tokens = {anchor};  // the last one is not in the cache yet
  std::vector<std::vector<float>> logits;
  while (static_cast<int>(tokens.size()) <= num_tokens) {
    logits.push_back(verify(model, plain, std::span(tokens).last(1), 1));
    tokens.push_back(read_best(model, 1).front());
  }

  Gemma4Session speculative = start();
  ASSERT_EQ(read_best(model, 1).front(), anchor);
  const std::size_t vocab = tiny.checkpoint.config.vocab_size;
  for (std::size_t at = 0, round = 0; at < logits.size(); ++round) {
    const std::size_t count = std::min(logits.size() - at, 1 + round * 5 % 8);
    const std::size_t right = 1 + round % count;  // the anchor and the drafts that are right
    std::vector<int> ids(tokens.begin() + at, tokens.begin() + at + count);
    for (std::size_t i = right; i < count; ++i) ids[i] = (ids[i] + 1 + static_cast<int>(i)) % 320;
    const std::vector<float> rows = verify(model, speculative, ids, static_cast<int>(right));
    for (std::size_t i = 0; i < right; ++i) {
      ASSERT_TRUE(
          std::equal(logits[at + i].begin(), logits[at + i].end(), rows.begin() + i * vocab))
          << "round " << round << ", row " << i << " of " << count;
    }
    at += right;
  }
}

// Of the residual stream, which bf16 rounds in every layer; seen are 0.017.
constexpr double kMaxStreamError = 0.03;

// The streams that a drafter takes: with them the logits are the same bits.
inline void expect_taps(Engine& engine) {
  const TinyModel tiny;
  const GoldenLogits golden;
  const std::vector<int> ids = golden.ids();
  const std::span<const int> some = std::span(ids).first(6);
  Gemma4Model without = tiny.on(engine);
  Gemma4Session plain = without.open_session();
  const std::vector<float> logits = verify(without, plain, some, 6);

  Gemma4ModelOptions options = TinyModel::options();
  options.taps = {0, 2, 5};
  Gemma4Model model = tiny.on(engine, options);
  Gemma4Session session = model.open_session();
  EXPECT_EQ(verify(model, session, some, 6), logits);
  const std::size_t hidden = tiny.checkpoint.config.hidden_size();
  std::vector<std::uint16_t> taps(6 * 3 * hidden);
  model.device().copy_to_host(std::as_writable_bytes(std::span(taps)), model.features().rows,
                              nullptr);
  for (std::size_t tap = 0; tap < 3; ++tap) {
    const oracle::Rows expected = golden.logits("hidden." + std::to_string(options.taps[tap]));
    oracle::Rows given, right(expected.begin(), expected.begin() + 6 * hidden);
    for (std::size_t token = 0; token < 6; ++token) {
      for (std::size_t i = 0; i < hidden; ++i) {
        given.push_back(bf16_to_float(taps[(token * 3 + tap) * hidden + i]));
      }
    }
    EXPECT_LE(relative_l2(given, right), kMaxStreamError) << options.taps[tap];
  }
  options.taps = {2, 2};
  EXPECT_THROW(tiny.on(engine, options), InvalidArgument);
  options.taps = {7};
  EXPECT_THROW(tiny.on(engine, options), InvalidArgument);
}

}  // namespace attune
