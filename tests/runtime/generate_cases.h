// Generation with the tiny model on a device: whatever is drafted, the tokens and the bits of the
// logits are those of plain decoding.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/eagle3_drafter.h"
#include "runtime/generate.h"
#include "runtime/ngram_drafter.h"
#include "tests/runtime/gemma4_model_cases.h"
#include "tests/support/eagle3_oracle.h"
#include "tests/support/made_tensors.h"

namespace attune {

// Proposes the tokens of `plain`, of which every `wrong_every`-th, counted over the run, is another.
class ScriptedDrafter final : public Drafter {
 public:
  ScriptedDrafter(std::vector<int> plain, int wrong_every)
      : plain_(std::move(plain)), wrong_every_(wrong_every) {}
  void begin(std::int32_t) override { length_ = 1; }
  void append(std::span<const std::int32_t> tokens, const TargetFeatures&) override {
    length_ += tokens.size();
  }
  Proposal propose(int max_tokens, const SamplingOptions&) override {
    Proposal proposal;
    for (int i = 0; i < max_tokens; ++i) {
      const std::size_t at = length_ + static_cast<std::size_t>(i);
      const int right = at < plain_.size() ? plain_[at] : 7;
      const bool is_wrong = wrong_every_ > 0 && ++count_ % wrong_every_ == 0;
      proposal.tokens.push_back(is_wrong ? (right + 1) % 320 : right);
    }
    return proposal;
  }

 private:
  std::vector<int> plain_;  // the prompt and what plain decoding adds
  std::size_t length_ = 0;
  int wrong_every_;
  int count_ = 0;
};

// A head for the tiny model.
inline Eagle3Config tiny_eagle3_config(bool norm_before_residual = true) {
  Eagle3Config config;
  config.hidden_size = 64;
  config.target_hidden_size = 64;
  config.intermediate_size = 128;
  config.num_q_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.draft_vocab_size = 80;
  config.target_vocab_size = 320;
  config.norm_before_residual = norm_before_residual;
  config.taps = {1, 3, 5};
  return config;
}

inline std::vector<int> tiny_prompt(int length) {
  std::mt19937 random(11);
  std::vector<int> prompt = {2};
  while (static_cast<int>(prompt.size()) < length) {
    prompt.push_back(3 + static_cast<int>(random() % 300));
  }
  return prompt;
}

struct Generation {
  explicit Generation(Engine& on, int max_tokens = 256) : engine(on) {
    options.attention = TinyModel::options().attention;
    options.attention.max_tokens = max_tokens;
    options.attention.max_verify = 16;
    options.attention.max_sequences = 3;
    options.taps = tiny_eagle3_config().taps;
    model = std::make_unique<Gemma4Model>(tiny.on(on, options));
  }
  GenerateResult run(Drafter* drafter, const std::vector<int>& prompt,
                     const GenerateOptions& asked) {
    Generator generator(*model, drafter, stream.get());
    return generator.run(prompt, asked);
  }
  // With the logits behind which each token was emitted: token i of a round is of row i.
  GenerateResult run_with_logits(Drafter* drafter, const std::vector<int>& prompt,
                                 GenerateOptions asked, std::vector<float>* logits) {
    logits->clear();
    asked.on_tokens = [&](std::span<const std::int32_t> tokens) {
      const std::vector<float> rows = read_logits(*model, static_cast<int>(tokens.size()));
      logits->insert(logits->end(), rows.begin(), rows.end());
      return true;
    };
    return run(drafter, prompt, asked);
  }
  std::unique_ptr<Drafter> eagle3() const {
    return std::make_unique<Eagle3Drafter>(
        Eagle3Head::random(engine, tiny_eagle3_config(),
                           {.max_tokens = options.attention.max_tokens,
                            .max_rows = options.attention.max_prefill,
                            .max_round = 16},
                           5),
        engine.device(), stream.get());
  }

  Engine& engine;
  Stream stream = engine.device().create_stream();
  TinyModel tiny;
  Gemma4ModelOptions options;
  std::unique_ptr<Gemma4Model> model;
};

// `chains` in turn, each with every drafter, behind prompts of several lengths.
inline void expect_lossless(Engine& engine, int num_tokens, const std::vector<int>& chains,
                            const std::vector<int>& prompts) {
  Generation on(engine);
  const std::unique_ptr<Drafter> eagle3 = on.eagle3();
  NgramDrafter ngram({.max_n = 3, .min_n = 1});
  std::int64_t num_accepted = 0;
  for (const int prompt_length : prompts) {
    const std::vector<int> prompt = tiny_prompt(prompt_length);
    GenerateOptions options;
    options.max_new_tokens = num_tokens;
    std::vector<float> plain_logits, logits;
    const GenerateResult plain = on.run_with_logits(nullptr, prompt, options, &plain_logits);
    ASSERT_EQ(static_cast<int>(plain.tokens.size()), num_tokens);
    std::vector<int> all = prompt;
    all.insert(all.end(), plain.tokens.begin(), plain.tokens.end());
    ScriptedDrafter right(all, 0), wrong(all, 1), half(all, 2), some(all, 5);
    for (const int chain : chains) {
      options.chain = chain;
      options.cuda_graph = chain % 2 == 0;
      for (Drafter* drafter : {eagle3.get(), static_cast<Drafter*>(&ngram),
                               static_cast<Drafter*>(&right), static_cast<Drafter*>(&wrong),
                               static_cast<Drafter*>(&half), static_cast<Drafter*>(&some)}) {
        const GenerateResult result = on.run_with_logits(drafter, prompt, options, &logits);
        ASSERT_EQ(result.tokens, plain.tokens) << "chain " << chain << " prompt " << prompt_length;
        ASSERT_TRUE(logits == plain_logits) << "chain " << chain << " prompt " << prompt_length;
        EXPECT_EQ(result.end, GenerateEnd::kMaxNewTokens);
        num_accepted += result.stats.num_accepted();
      }
    }
  }
  EXPECT_GT(num_accepted, 0);
}

// A drafter that fails at a call, and one that proposes more than it is asked for.
class BrokenDrafter final : public Drafter {
 public:
  explicit BrokenDrafter(int fails_at) : fails_at_(fails_at) {}
  void begin(std::int32_t) override {}
  void append(std::span<const std::int32_t>, const TargetFeatures&) override { count(); }
  Proposal propose(int max_tokens, const SamplingOptions&) override {
    count();
    return {.tokens = std::vector<std::int32_t>(static_cast<std::size_t>(max_tokens + 1), 3)};
  }

 private:
  void count() {
    if (++calls_ == fails_at_) throw Error("the drafter is broken", {});
  }
  int fails_at_;
  int calls_ = 0;
};

// Runs of one generator: other prompts, cancelled ones and failed ones in between change nothing.
inline void expect_runs_share_a_generator(Engine& engine, const std::vector<int>& prompts) {
  Generation on(engine);
  GenerateOptions options;
  options.max_new_tokens = 6;
  options.chain = 2;
  NgramDrafter ngram({.max_n = 2, .min_n = 1});
  Generator generator(*on.model, &ngram, on.stream.get());
  for (const int length : prompts) {
    const std::vector<int> prompt = tiny_prompt(length);
    const GenerateResult alone = on.run(nullptr, prompt, options);
    EXPECT_EQ(generator.run(prompt, options).tokens, alone.tokens) << length;
    GenerateOptions cancelled = options;
    cancelled.on_tokens = [](std::span<const std::int32_t>) { return false; };
    EXPECT_EQ(generator.run(tiny_prompt(3), cancelled).end, GenerateEnd::kCancelled);
    cancelled.on_tokens = [](std::span<const std::int32_t>) -> bool { throw Error("stop", {}); };
    EXPECT_THROW(generator.run(tiny_prompt(5), cancelled), Error);
    options.cuda_graph = !options.cuda_graph;
  }
  for (const int fails_at : {1, 2, 99}) {
    BrokenDrafter broken(fails_at);
    Generator breaks(*on.model, &broken, on.stream.get());
    options.cuda_graph = fails_at == 2;
    EXPECT_THROW(breaks.run(tiny_prompt(4), options), Error) << fails_at;
    EXPECT_THROW(breaks.run(tiny_prompt(4), options), Error) << "and not for an open step";
  }
}

// A model of random weights behind contexts whose keys and values are whatever `config` makes of
// random tokens: plain decoding against a head, n-grams and an adversary, all with the same bits.
inline void expect_lossless_at(Engine& engine, const ModelConfig& config, int num_tokens,
                               const std::vector<int>& contexts) {
  Eagle3Config head;
  head.hidden_size = head.target_hidden_size = config.hidden_size();
  head.intermediate_size = 2048;
  head.num_q_heads = 8;
  head.num_kv_heads = 4;
  head.draft_vocab_size = 4096;
  head.target_vocab_size = config.vocab_size;
  head.taps = {1, config.num_layers() / 2, config.num_layers()};
  Gemma4ModelOptions options;
  options.attention.max_tokens = contexts.back() + num_tokens;
  options.attention.max_prefill = 512;
  options.attention.max_verify = 16;
  options.attention.max_sequences = 2;
  options.attention.invariant = true;
  options.attention.global_layout = config.compact_layout();
  options.taps = head.taps;
  Gemma4Model model = Gemma4Model::random(engine, config, options, 1);
  const Stream stream = engine.device().create_stream();
  Eagle3Drafter eagle3(
      Eagle3Head::random(engine, head, {.max_tokens = options.attention.max_tokens}, 2),
      engine.device(), stream.get());
  NgramDrafter ngram({.max_n = 3, .min_n = 1});
  std::mt19937 random(3);
  for (const int context : contexts) {
    std::vector<int> prompt(static_cast<std::size_t>(context));
    for (int& id : prompt) id = static_cast<int>(random() % config.vocab_size);
    const auto run = [&](Drafter* drafter, int chain, std::vector<float>* last) {
      GenerateOptions asked;
      asked.max_new_tokens = num_tokens;
      asked.chain = chain;
      asked.on_tokens = [&](std::span<const std::int32_t> tokens) {
        std::vector<float> logits = read_logits(model, static_cast<int>(tokens.size()));
        last->assign(logits.end() - config.vocab_size, logits.end());
        return true;
      };
      return Generator(model, drafter, stream.get()).run(prompt, asked).tokens;
    };
    std::vector<float> plain_last, last;
    const std::vector<int> plain = run(nullptr, 4, &plain_last);
    std::vector<int> all = prompt;
    all.insert(all.end(), plain.begin(), plain.end());
    ScriptedDrafter half(all, 2), some(all, 7);
    for (Drafter* drafter : {static_cast<Drafter*>(&eagle3), static_cast<Drafter*>(&ngram),
                             static_cast<Drafter*>(&half), static_cast<Drafter*>(&some)}) {
      const int chain = 1 + static_cast<int>(random() % 15);
      ASSERT_EQ(run(drafter, chain, &last), plain) << "context " << context << " chain " << chain;
      ASSERT_TRUE(last == plain_last) << "context " << context << " chain " << chain;
    }
  }
}

// What a drafter proposes changes no token of a seed, and the seed decides.
inline void expect_sampling_repeats(Engine& engine, int num_tokens) {
  Generation on(engine);
  const std::vector<int> prompt = tiny_prompt(20);
  GenerateOptions options;
  options.max_new_tokens = num_tokens;
  options.sampling = {.temperature = 1.5, .top_k = 40, .top_p = 0.95, .seed = 4};
  const GenerateResult plain = on.run(nullptr, prompt, options);
  NgramDrafter ngram({.max_n = 3, .min_n = 1});
  EXPECT_EQ(on.run(&ngram, prompt, options).tokens, plain.tokens);
  const std::unique_ptr<Drafter> eagle3 = on.eagle3();
  const GenerateResult drawn = on.run(eagle3.get(), prompt, options);
  EXPECT_EQ(drawn.tokens.size(), plain.tokens.size());
  EXPECT_EQ(on.run(eagle3.get(), prompt, options).tokens, drawn.tokens);
  options.sampling.seed = 5;
  EXPECT_NE(on.run(nullptr, prompt, options).tokens, plain.tokens);
}

inline void expect_ends(Engine& engine) {
  Generation on(engine, 40);
  const std::vector<int> prompt = tiny_prompt(33);
  GenerateOptions options;
  options.max_new_tokens = 100;
  const GenerateResult whole = on.run(nullptr, prompt, options);
  EXPECT_EQ(whole.end, GenerateEnd::kContextEnd);
  EXPECT_EQ(whole.tokens.size(), 7u);
  const std::unique_ptr<Drafter> eagle3 = on.eagle3();
  EXPECT_EQ(on.run(eagle3.get(), prompt, options).tokens, whole.tokens);

  options.stop_tokens = {whole.tokens[4]};
  const auto first = std::find(whole.tokens.begin(), whole.tokens.end(), whole.tokens[4]);
  const GenerateResult stopped = on.run(eagle3.get(), prompt, options);
  EXPECT_EQ(stopped.end, GenerateEnd::kStopToken);
  EXPECT_EQ(stopped.tokens, std::vector<int>(whole.tokens.begin(), first + 1));

  options.stop_tokens = {};
  std::vector<int> seen;
  options.on_tokens = [&](std::span<const std::int32_t> tokens) {
    seen.insert(seen.end(), tokens.begin(), tokens.end());
    return seen.size() < 4;
  };
  const GenerateResult cancelled = on.run(nullptr, prompt, options);
  EXPECT_EQ(cancelled.end, GenerateEnd::kCancelled);
  EXPECT_EQ(cancelled.tokens, seen);
  EXPECT_EQ(seen.size(), 4u);
}

// Packed weights: other tokens, but the same ones whatever is drafted.
inline void expect_packed_weights(Engine& engine, int num_tokens) {
  const TinyModel tiny;
  Gemma4ModelOptions options = TinyModel::options();
  options.attention.max_sequences = 2;
  const std::vector<int> prompt = tiny_prompt(12);
  const auto logits_of = [&](Gemma4Model& model) {
    Gemma4Session session = model.open_session();
    return verify(model, session, prompt, 12);
  };
  Gemma4Model plain = tiny.on(engine, options);
  options.weights = LinearWeights::kInt4;
  Gemma4Model packed = tiny.on(engine, options);
  EXPECT_LT(packed.weight_bytes(), plain.weight_bytes());
  const std::vector<float> right = logits_of(plain), given = logits_of(packed);
  const double error = relative_l2(oracle::Rows(given.begin(), given.end()),
                                   oracle::Rows(right.begin(), right.end()));
  std::printf("int4: relative L2 of the logits %.3g\n", error);
  EXPECT_LT(error, 0.6);  // seen are 0.42: of random weights the scales are coarse
  EXPECT_GT(error, 0.01);
  const Stream stream = engine.device().create_stream();
  GenerateOptions asked;
  asked.max_new_tokens = num_tokens;
  asked.chain = 3;
  const GenerateResult alone = Generator(packed, nullptr, stream.get()).run(prompt, asked);
  std::vector<int> all = prompt;
  all.insert(all.end(), alone.tokens.begin(), alone.tokens.end());
  ScriptedDrafter half(all, 2);
  EXPECT_EQ(Generator(packed, &half, stream.get()).run(prompt, asked).tokens, alone.tokens);
}

inline void expect_refusals(Engine& engine) {
  Generation on(engine, 64);
  NgramDrafter ngram;
  GenerateOptions options;
  for (const int chain : {0, 16, 99}) {
    options.chain = chain;
    EXPECT_THROW(on.run(&ngram, tiny_prompt(5), options), InvalidArgument) << chain;
  }
  options.chain = 4;
  EXPECT_THROW(Generator(*on.model, nullptr, nullptr).run(tiny_prompt(5), options),
               InvalidArgument);  // captures need a stream
  EXPECT_THROW(on.run(nullptr, {}, options), InvalidArgument);
  EXPECT_THROW(on.run(nullptr, tiny_prompt(64), options), InvalidArgument);
  EXPECT_THROW(on.run(nullptr, {2, 320}, options), InvalidArgument);
  EXPECT_THROW(on.run(nullptr, {2, -1}, options), InvalidArgument);
  options.sampling.temperature = -1;
  EXPECT_THROW(on.run(nullptr, {2}, options), InvalidArgument);
  Gemma4ModelOptions without = on.options;
  without.taps = {};
  Gemma4Model model = on.tiny.on(engine, without);
  const std::unique_ptr<Drafter> eagle3 = on.eagle3();
  EXPECT_THROW(Generator(model, eagle3.get(), nullptr), InvalidArgument);
}

// The head against the oracle: appends of several sizes, chains, and appends over them.
inline void expect_eagle3_oracle(Engine& engine, bool norm_before_residual) {
  const Eagle3Config config = tiny_eagle3_config(norm_before_residual);
  const MadeTensors tensors = random_tensors(weight_specs(config), 3, config.target_vocab_size);
  const TensorViews views = views_of(tensors);
  const Eagle3Tensors<TensorView> weights = match_weights(config, views);
  Eagle3Head head(engine, config, weights, 0, {.max_tokens = 100, .max_rows = 24, .max_round = 4});
  oracle::Eagle3Oracle judge(config, floats_of(config, weights));

  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  const int width = config.num_taps() * config.target_hidden_size;
  int length = 0;
  for (const int rows : {20, 3, 1, 4, 2}) {
    std::vector<std::uint16_t> taps;
    for (int i = 0; i < rows * width; ++i) taps.push_back(float_to_bf16(normal(random)));
    std::vector<int> tokens;
    for (int i = 0; i < rows; ++i) tokens.push_back(static_cast<int>(random() % 320));
    const DeviceMem memory = engine.device().allocate(taps.size() * sizeof(taps[0]));
    engine.device().copy_to_device(memory.ptr(), std::as_bytes(std::span(taps)), nullptr);
    head.append(tokens, memory.ptr(), width, nullptr);
    judge.cut(length);
    oracle::Rows wide;
    for (const std::uint16_t bits : taps) wide.push_back(bf16_to_float(bits));
    oracle::Eagle3Oracle::Step step = judge.push(tokens, judge.fuse(wide));
    length += rows;
    for (int extended = 0;; ++extended) {
      const std::size_t vocab = config.draft_vocab_size, hidden = config.hidden_size;
      std::vector<float> logits(vocab);
      engine.device().copy_to_host(std::as_writable_bytes(std::span(logits)), head.logits(),
                                   nullptr);
      const oracle::Rows given(logits.begin(), logits.end());
      const oracle::Rows right(step.logits.end() - vocab, step.logits.end());
      EXPECT_LE(relative_l2(given, right), 0.02) << "rows " << rows << " extended " << extended;
      int chained[4];
      engine.device().copy_to_host(std::as_writable_bytes(std::span(chained)), head.chain(),
                                   nullptr);
      const int best =
          static_cast<int>(std::max_element(given.begin(), given.end()) - given.begin());
      EXPECT_EQ(chained[extended], head.target_tokens()[best]);
      EXPECT_EQ(head.length(), length + extended);
      if (extended == 3) break;
      const bool names_token = extended == 1;
      const int token = names_token ? 33 : chained[extended];
      head.extend(names_token ? token : -1, nullptr);
      const oracle::Rows g(step.g.end() - hidden, step.g.end());
      step = judge.push(std::vector<int>{token}, g);
    }
  }
}

}  // namespace attune
