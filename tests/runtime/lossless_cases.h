// Speculation counted against plain decoding over many tokens and contexts: whatever is drafted, the
// ids are the same and so are the bits of the logits.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/text.h"
#include "runtime/eagle3_drafter.h"
#include "runtime/generate.h"
#include "tests/runtime/generate_cases.h"
#include "tests/runtime/lossless_drafters.h"

namespace attune {

// What a run emitted and by which logits.
struct RunRecord {
  std::vector<int> tokens;
  std::vector<Digest> rows;         // of the logits behind every row_stride-th token and the last
  std::vector<std::uint32_t> last;  // bits of the logits behind the last token
  SpeculationStats stats;
};

// How two runs differ; what one of them has more differs.
struct LosslessCounts {
  std::int64_t tokens = 0, differing_ids = 0;
  std::int64_t rows = 0, differing_rows = 0;
  std::int64_t values = 0, differing_values = 0;  // of the last rows

  void add(const RunRecord& plain, const RunRecord& given) {
    add(plain.tokens, given.tokens, &tokens, &differing_ids);
    add(plain.rows, given.rows, &rows, &differing_rows);
    add(plain.last, given.last, &values, &differing_values);
  }

 private:
  template <typename Value>
  static void add(const std::vector<Value>& a, const std::vector<Value>& b, std::int64_t* compared,
                  std::int64_t* differing) {
    const std::size_t size = std::max(a.size(), b.size());
    *compared += static_cast<std::int64_t>(size);
    for (std::size_t i = 0; i < size; ++i) {
      if (i >= a.size() || i >= b.size() || a[i] != b[i]) ++*differing;
    }
  }
};

// A model, a head of random weights for it, and what plain decoding gives behind random prompts.
class LosslessRuns {
 public:
  struct Plan {
    std::string name;
    std::vector<int> contexts;  // tokens of each prompt
    int num_tokens = 0;         // of each drafter, over all contexts
    int row_stride = 1;

    int tokens_behind_each() const {
      const auto count = static_cast<int>(contexts.size());
      return (num_tokens + count - 1) / count;
    }
    int longest_sequence() const {
      return *std::max_element(contexts.begin(), contexts.end()) + tokens_behind_each();
    }
  };
  struct Outcome {
    LosslessCounts counts;
    std::int64_t num_rounds = 0, num_proposed = 0, num_accepted = 0;
    std::array<std::int64_t, kLongestChain + 1> num_chains{};  // by length
  };

  LosslessRuns(Plan plan, Gemma4Model model, Eagle3Head head)
      : plan_(std::move(plan)),
        model_(std::move(model)),
        stream_(model_.device().create_stream()),
        eagle3_(std::move(head), model_.device(), stream_.get()) {}

  Outcome compare(Drafting drafting) {
    Outcome outcome;
    for (std::size_t i = 0; i < plan_.contexts.size(); ++i) {
      const auto& [prompt, plain] = plain_run(i);
      const std::unique_ptr<Drafter> made = make_drafter(drafting, prompt, plain.tokens);
      WalkingDrafter drafter(made ? *made : eagle3_, 4 * static_cast<int>(i));
      // Plain decoding replays graphs; every fourth context is launched kernel by kernel.
      const RunRecord given = run(&drafter, prompt, i % 4 != 3);
      outcome.counts.add(plain, given);
      outcome.num_rounds += given.stats.num_rounds();
      outcome.num_accepted += given.stats.num_accepted();
      for (int length = 0; length <= kLongestChain; ++length) {
        const std::int64_t num_chains = drafter.num_chains()[static_cast<std::size_t>(length)];
        outcome.num_chains[static_cast<std::size_t>(length)] += num_chains;
        outcome.num_proposed += num_chains * length;
      }
    }
    return outcome;
  }

  void expect_lossless(Drafting drafting) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    for (std::size_t i = 0; i < plan_.contexts.size(); ++i) plain_run(i);
    const auto decoded = Clock::now();
    const Outcome outcome = compare(drafting);
    const auto seconds = [](auto span) { return std::chrono::duration<double>(span).count(); };
    report(drafting, outcome, seconds(decoded - start), seconds(Clock::now() - decoded));
    const LosslessCounts& counts = outcome.counts;
    const auto num_contexts = static_cast<std::int64_t>(plan_.contexts.size());
    EXPECT_EQ(counts.tokens, num_contexts * plan_.tokens_behind_each());
    EXPECT_EQ(counts.values, num_contexts * model_.config().vocab_size);
    EXPECT_GE(counts.rows, counts.tokens / plan_.row_stride);
    EXPECT_EQ(counts.differing_ids, 0);
    EXPECT_EQ(counts.differing_rows, 0);
    EXPECT_EQ(counts.differing_values, 0);
    expect_drafts(drafting, outcome);
  }

 private:
  // Whether the drafter did what it is there for.
  void expect_drafts(Drafting drafting, const Outcome& outcome) const {
    const std::int64_t accepted = outcome.num_accepted, proposed = outcome.num_proposed;
    EXPECT_GT(proposed, 0);
    if (drafting == Drafting::kRight) {
      EXPECT_EQ(accepted, proposed);
    }
    if (drafting == Drafting::kWrong) {
      EXPECT_EQ(accepted, 0);
    }
    // Whether every length can be there.
    const bool is_long = plan_.tokens_behind_each() >= 10 * kLongestChain;
    if (!is_long) return;
    for (int length = 1; length <= kLongestChain; ++length) {
      EXPECT_GT(outcome.num_chains[static_cast<std::size_t>(length)], 0) << length;
    }
    if (drafting == Drafting::kNgram) {
      EXPECT_GT(accepted, 0);
    }
    if (drafting == Drafting::kHalfRight) {
      EXPECT_GT(4 * accepted, proposed);
      EXPECT_LT(4 * accepted, 3 * proposed);
    }
  }

  void report(Drafting drafting, const Outcome& outcome, double plain_s, double drafted_s) const {
    const LosslessCounts& counts = outcome.counts;
    std::set<int> distinct;
    for (const auto& [prompt, plain] : plain_) {
      distinct.insert(plain.tokens.begin(), plain.tokens.end());
    }
    int shortest = kLongestChain, longest = 0;
    for (int length = 1; length <= kLongestChain; ++length) {
      if (outcome.num_chains[static_cast<std::size_t>(length)] == 0) continue;
      shortest = std::min(shortest, length);
      longest = length;
    }
    const auto percent = [](std::int64_t part, std::int64_t whole) {
      return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
    };
    const std::string text = fmt::format(
        "{}, {}: {} tokens ({} distinct) behind contexts {}: {} ids differ; of {} rows of logits "
        "{} differ; of {} values of the last rows the bits of {} differ; {} rounds of K {} to {}, "
        "{} of {} proposals accepted ({:.1f} %), {:.2f} tokens a round; {:.1f} s, plain decoding "
        "before {:.1f} s\n",
        plan_.name, name_of(drafting), counts.tokens, distinct.size(),
        fmt::join(plan_.contexts, " "), counts.differing_ids, counts.rows, counts.differing_rows,
        counts.values, counts.differing_values, outcome.num_rounds, shortest, longest,
        outcome.num_accepted, outcome.num_proposed,
        percent(outcome.num_accepted, outcome.num_proposed),
        percent(counts.tokens, outcome.num_rounds) / 100, drafted_s, plain_s);
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  // The prompt of a context and what plain decoding adds, decoded once.
  const std::pair<std::vector<int>, RunRecord>& plain_run(std::size_t idx) {
    while (plain_.size() <= idx) {
      std::mt19937 random(static_cast<unsigned>(plain_.size() + 1));
      std::vector<int> prompt(static_cast<std::size_t>(plan_.contexts[plain_.size()]));
      const auto vocab = static_cast<unsigned>(model_.config().vocab_size);
      for (int& id : prompt) id = static_cast<int>(random() % vocab);
      RunRecord plain = run(nullptr, prompt, true);
      plain_.emplace_back(std::move(prompt), std::move(plain));
    }
    return plain_[idx];
  }

  // None for the head, which is one for all contexts.
  std::unique_ptr<Drafter> make_drafter(Drafting drafting, std::vector<int> prompt,
                                        const std::vector<int>& answer) const {
    const int vocab = model_.config().vocab_size;
    if (drafting == Drafting::kEagle3) return nullptr;
    if (drafting == Drafting::kNgram) return std::make_unique<RecallingDrafter>(answer, vocab);
    prompt.insert(prompt.end(), answer.begin(), answer.end());
    return std::make_unique<AdversaryDrafter>(drafting, std::move(prompt), vocab);
  }

  RunRecord run(Drafter* drafter, const std::vector<int>& prompt, bool cuda_graph) {
    RunRecord record;
    GenerateOptions asked;
    asked.chain = kLongestChain;
    asked.max_new_tokens = plan_.tokens_behind_each();
    asked.cuda_graph = cuda_graph;
    std::vector<std::uint32_t> row(static_cast<std::size_t>(model_.config().vocab_size));
    int num_emitted = 0;
    // Token i of a round is of row i.
    asked.on_tokens = [&](std::span<const std::int32_t> tokens) {
      for (std::size_t i = 0; i < tokens.size(); ++i, ++num_emitted) {
        const bool is_last = num_emitted + 1 == asked.max_new_tokens;
        if (num_emitted % plan_.row_stride != 0 && !is_last) continue;
        const auto bytes = std::as_writable_bytes(std::span(row));
        model_.device().copy_to_host(bytes, model_.logits() + i * bytes.size(), stream_.get());
        record.rows.push_back(digest_of(bytes));
        if (is_last) record.last = row;
      }
      return true;
    };
    GenerateResult result = Generator(model_, drafter, stream_.get()).run(prompt, asked);
    record.tokens = std::move(result.tokens);
    record.stats = std::move(result.stats);
    return record;
  }

  Plan plan_;
  Gemma4Model model_;
  Stream stream_;
  Eagle3Drafter eagle3_;
  std::vector<std::pair<std::vector<int>, RunRecord>> plain_;
};

inline Gemma4ModelOptions lossless_options(const LosslessRuns::Plan& plan, int max_prefill,
                                           std::vector<int> taps) {
  Gemma4ModelOptions options;
  options.attention.max_tokens = plan.longest_sequence();
  options.attention.max_prefill = max_prefill;
  options.attention.max_verify = kMaxVerifyTokens;
  options.attention.invariant = true;
  options.taps = std::move(taps);
  return options;
}

inline Eagle3Head lossless_head(Engine& engine, const Eagle3Config& config,
                                const Gemma4ModelOptions& options) {
  return Eagle3Head::random(engine, config,
                            {.max_tokens = options.attention.max_tokens,
                             .max_rows = options.attention.max_prefill,
                             .max_round = kMaxVerifyTokens},
                            5);
}

// The checkpoint of tests/data, also behind more tokens than it promises.
inline std::unique_ptr<LosslessRuns> tiny_lossless(Engine& engine, LosslessRuns::Plan plan,
                                                   int max_prefill) {
  TinyModel tiny;
  int& max_positions = tiny.checkpoint.config.geometry.max_positions;
  max_positions = std::max(max_positions, plan.longest_sequence());
  const Eagle3Config head = tiny_eagle3_config();
  const Gemma4ModelOptions options = lossless_options(plan, max_prefill, head.taps);
  return std::make_unique<LosslessRuns>(std::move(plan), tiny.on(engine, options),
                                        lossless_head(engine, head, options));
}

// num_layers of `config`, of which fewer than six end with its first global one.
inline std::unique_ptr<LosslessRuns> random_lossless(Engine& engine, ModelConfig config,
                                                     int num_layers, LosslessRuns::Plan plan) {
  std::vector<LayerGeometry>& layers = config.geometry.layers;
  layers.erase(layers.begin(), layers.begin() + std::max(0, 6 - num_layers));
  layers.resize(static_cast<std::size_t>(num_layers));
  for (int idx = 0; idx < num_layers; ++idx) layers[static_cast<std::size_t>(idx)].kv_layer = idx;
  Eagle3Config head;
  head.hidden_size = head.target_hidden_size = config.hidden_size();
  head.intermediate_size = 2048;
  head.num_q_heads = 8;
  head.num_kv_heads = 4;
  head.draft_vocab_size = std::min(4096, config.vocab_size / 4);
  head.target_vocab_size = config.vocab_size;
  head.taps = {0, num_layers / 2, num_layers};
  Gemma4ModelOptions options = lossless_options(plan, 512, head.taps);
  options.attention.global_layout = config.compact_layout();
  return std::make_unique<LosslessRuns>(std::move(plan),
                                        Gemma4Model::random(engine, config, options, 1),
                                        lossless_head(engine, head, options));
}

// A number of the environment. Throws InvalidArgument for anything else.
inline int number_of_environment(const char* name, int otherwise, int least, int most) {
  const char* text = std::getenv(name);
  if (text == nullptr) return otherwise;
  const std::optional<std::int64_t> value = parse_int(text);
  if (value && *value >= least && *value <= most) return static_cast<int>(*value);
  throw InvalidArgument("cannot size the test", fmt::format("{}='{}'", name, text),
                        fmt::format("it is {} to {}, or not set: {}", least, most, otherwise));
}

}  // namespace attune
