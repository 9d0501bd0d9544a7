// The C ABI of whole models on the host device, with the tiny checkpoint: golden tokens, the bits of the C++
// interface, the same tokens whatever is drafted.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/attune_model_c.h"
#include "runtime/model_c_handles.h"
#include "tests/cli/tiny_models.h"
#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/gemma4_model_cases.h"
#include "tests/support/require_cxx.h"
#include "tests/support/temporary_folder.h"

namespace attune {
namespace {

class ModelCHost : public HostCompilerTest {
 protected:
  void SetUp() override {
    HostCompilerTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    attune_options asked{};
    const std::string cache = gemma4_test_cache();
    asked.struct_size = sizeof(asked);
    asked.device = "host";
    asked.cache_path = cache.c_str();
    ok(attune_engine_create(&asked, &engine));
    options.struct_size = sizeof(options);
    options.max_tokens = 256;
    options.max_sequences = 3;
    options.max_prefill = 40;
    options.max_verify = 16;
  }
  void TearDown() override { attune_engine_destroy(engine); }

  static void ok(attune_status status) { ASSERT_EQ(status, ATTUNE_OK) << attune_last_error(); }
  static void refused(attune_status status, const std::string& part) {
    EXPECT_EQ(status, ATTUNE_INVALID_ARGUMENT) << part;
    EXPECT_NE(std::string(attune_last_error()).find(part), std::string::npos)
        << attune_last_error();
  }
  attune_model* open_tiny() {
    attune_model* model = nullptr;
    ok(attune_model_open(engine, test_data("gemma4-tiny").c_str(), &options, &model));
    return model;
  }
  static attune_model_info info_of(const attune_model* model) {
    attune_model_info info{};
    info.struct_size = sizeof(info);
    ok(attune_model_get_info(model, &info));
    return info;
  }
  static std::vector<int> tokens_of(const attune_generator* generator) {
    size_t count = 0;
    ok(attune_generator_tokens(generator, nullptr, 0, &count));
    std::vector<int> tokens(count);
    ok(attune_generator_tokens(generator, tokens.data(), count, nullptr));
    return tokens;
  }
  static attune_generate_options run_options() {
    attune_generate_options run{};
    run.struct_size = sizeof(run);
    run.max_new_tokens = 7;
    run.ignore_stop_tokens = 1;
    return run;
  }

  attune_engine* engine = nullptr;
  attune_model_options options{};
  TemporaryFolder folder_;
  const GoldenLogits golden_;
  const std::vector<int> ids_ = golden_.ids();
};

// A prompt and verified tokens of golden ids.
TEST_F(ModelCHost, GivesTheGoldenTokensAndTheBitsOfTheCppInterface) {
  attune_model* model = open_tiny();
  ASSERT_NE(model, nullptr);
  const attune_model_info info = info_of(model);
  EXPECT_EQ(info.vocab_size, 320);
  EXPECT_EQ(info.max_verify, 16);
  EXPECT_GT(info.weight_bytes, 100'000u);
  attune_model_session* session = nullptr;
  ok(attune_model_session_open(model, &session));
  ok(attune_model_set_tokens(model, ids_.data(), 40, nullptr));
  ok(attune_model_session_prefill(session, 40, nullptr));
  ok(attune_model_session_commit(session, 40, nullptr));
  std::vector<int> best(1);
  ok(attune_model_read_best(model, 1, best.data(), nullptr));
  std::vector<float> logits(320);
  ok(attune_model_read_logits(model, 1, logits.data(), nullptr));

  const Gemma4ModelOptions same = [] {
    Gemma4ModelOptions asked = TinyModel::options();
    asked.attention.max_sequences = 3;
    asked.attention.global_layout = TinyModel().checkpoint.config.compact_layout();
    return asked;
  }();
  Gemma4Model cpp = TinyModel().on(engine->engine, same);
  Gemma4Session cpp_session = cpp.open_session();
  cpp.set_tokens(std::span(ids_).first(40), nullptr);
  cpp.prefill(cpp_session, 40, nullptr);
  cpp_session.commit(40, nullptr);
  EXPECT_EQ(logits, read_logits(cpp, 1));
  EXPECT_EQ(best, read_best(cpp, 1));

  best.resize(16);
  std::vector<float> rows(16 * 320);
  const oracle::Rows expected = golden_.logits("logits");
  int num_decided = 0;
  for (int at = 40; at + 16 <= static_cast<int>(ids_.size()); at += 16) {
    ok(attune_model_set_tokens(model, ids_.data() + at, 16, nullptr));
    ok(attune_model_session_verify(session, 16, nullptr));
    ok(attune_model_read_best(model, 16, best.data(), nullptr));
    ok(attune_model_read_logits(model, 16, rows.data(), nullptr));
    ok(attune_model_session_commit(session, 16, nullptr));
    for (int row = 0; row < 16; ++row) {
      const std::span<const double> right(expected.data() + (at + row) * 320, 320);
      std::vector<double> sorted(right.begin(), right.end());
      std::sort(sorted.begin(), sorted.end(), std::greater());
      double most_error = 0;
      for (int i = 0; i < 320; ++i) {
        most_error = std::max(most_error, std::abs(right[i] - rows[row * 320 + i]));
      }
      if (sorted[0] - sorted[1] <= 3 * most_error) continue;
      ++num_decided;
      EXPECT_EQ(best[row], oracle::argmax(right)) << at + row;
    }
  }
  EXPECT_GE(num_decided, 9);
  EXPECT_LE(relative_l2(oracle::Rows(rows.begin(), rows.end()),
                        oracle::Rows(expected.begin() + 72 * 320, expected.begin() + 88 * 320)),
            0.04);
  ok(attune_model_session_rollback(session, 3, nullptr));
  int32_t length = 0, largest = 0;
  ok(attune_model_session_length(session, &length));
  ok(attune_model_session_largest_step(session, &largest));
  EXPECT_EQ(length, 85);
  EXPECT_GE(largest, 16);
  attune_model_session_close(session);
  attune_model_destroy(model);
}

TEST_F(ModelCHost, DraftsChangeNoToken) {
  write_head(folder_ / "head", {1, 3, 5});
  const std::string head = folder_ / "head";
  options.eagle3 = head.c_str();
  attune_model* model = open_tiny();
  ASSERT_NE(model, nullptr);
  // Its continuation is 20, 20, 20, then others.
  const std::vector<int> golden = elements<int>(golden_.file.at("greedy_from_40"));
  const std::vector<int> prompt(golden.begin(), golden.begin() + 42);
  attune_generate_options run = run_options();
  std::vector<int> plain;
  for (const auto draft : {ATTUNE_DRAFT_NONE, ATTUNE_DRAFT_NGRAM, ATTUNE_DRAFT_EAGLE3}) {
    attune_generator* generator = nullptr;
    ok(attune_generator_create(model, draft, nullptr, &generator));
    ASSERT_NE(generator, nullptr);
    attune_generate_result result{};
    result.struct_size = sizeof(result);
    run.chain = draft == ATTUNE_DRAFT_NGRAM ? 0 : 3;
    ok(attune_generator_run(generator, prompt.data(), prompt.size(), &run, &result));
    EXPECT_EQ(result.end, ATTUNE_END_MAX_NEW_TOKENS);
    EXPECT_EQ(result.num_tokens, 7);
    EXPECT_GT(result.prefill_s, 0);
    EXPECT_EQ(result.draft_s > 0, draft != ATTUNE_DRAFT_NONE);
    if (plain.empty()) plain = tokens_of(generator);
    EXPECT_EQ(tokens_of(generator), plain) << draft;
    EXPECT_EQ(plain, std::vector<int>(golden.begin() + 42, golden.begin() + 49));
    attune_generator_destroy(generator);
  }
  attune_model_destroy(model);
}

TEST_F(ModelCHost, TellsTokensAsTheyComeAndEndsWhereItIsTold) {
  attune_model* model = open_tiny();
  ASSERT_NE(model, nullptr);
  attune_generator* generator = nullptr;
  ok(attune_generator_create(model, ATTUNE_DRAFT_NONE, nullptr, &generator));
  ASSERT_NE(generator, nullptr);
  attune_generate_options run = run_options();
  std::vector<int> seen;
  run.context = &seen;
  run.on_tokens = [](const int32_t* tokens, size_t count, void* context) -> int32_t {
    auto& all = *static_cast<std::vector<int>*>(context);
    all.insert(all.end(), tokens, tokens + count);
    return all.size() < 4;
  };
  attune_generate_result result{};
  result.struct_size = sizeof(result);
  ok(attune_generator_run(generator, ids_.data(), 9, &run, &result));
  EXPECT_EQ(result.end, ATTUNE_END_CANCELLED);
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_EQ(tokens_of(generator), seen);

  run.on_tokens = nullptr;
  run.ignore_stop_tokens = 0;
  const int32_t stop = seen[2];
  run.stop_tokens = &stop;
  run.num_stop_tokens = 1;
  run.no_cuda_graph = 1;
  ok(attune_generator_run(generator, ids_.data(), 9, &run, &result));
  EXPECT_EQ(result.end, ATTUNE_END_STOP_TOKEN);
  EXPECT_EQ(tokens_of(generator).back(), stop);
  EXPECT_LE(result.num_tokens, 3);

  run = run_options();
  run.temperature = 1.5;
  run.seed = 3;
  ok(attune_generator_run(generator, ids_.data(), 9, &run, nullptr));
  const std::vector<int> drawn = tokens_of(generator);
  ok(attune_generator_run(generator, ids_.data(), 9, &run, nullptr));
  EXPECT_EQ(tokens_of(generator), drawn);
  EXPECT_FALSE(std::equal(seen.begin(), seen.end(), drawn.begin()));
  attune_generator_destroy(generator);
  attune_model_destroy(model);
}

TEST_F(ModelCHost, HandlesGoInAnyOrderAndRandomWeightsNeedNoCheckpoint) {
  const std::string config = write_two_layers(folder_.path());
  const std::string head = folder_.write("head.json", head_config({0, 1, 2}).dump());
  options.eagle3 = head.c_str();
  attune_model* model = nullptr;
  ok(attune_model_random(engine, config.c_str(), 5, &options, &model));
  ASSERT_NE(model, nullptr);
  attune_generator* generator = nullptr;
  ok(attune_generator_create(model, ATTUNE_DRAFT_EAGLE3, nullptr, &generator));
  ASSERT_NE(generator, nullptr);
  EXPECT_EQ(engine->num_owners.load(), 2);  // the test and the model
  attune_model_destroy(model);
  EXPECT_EQ(engine->num_owners.load(), 2);  // the test and the generator's model
  attune_engine_destroy(engine);
  engine = nullptr;
  attune_generate_options run = run_options();
  ok(attune_generator_run(generator, ids_.data(), 5, &run, nullptr));
  EXPECT_EQ(tokens_of(generator).size(), 7u);
  attune_generator_destroy(generator);
}

TEST_F(ModelCHost, RefusesWhatCannotBe) {
  attune_model* model = nullptr;
  refused(attune_model_open(nullptr, "x", nullptr, &model), "engine=NULL");
  refused(attune_model_open(engine, nullptr, nullptr, &model), "folder=NULL");
  refused(attune_model_open(engine, "/nowhere", nullptr, &model), "/nowhere");
  EXPECT_EQ(model, nullptr);
  options.weights = 9;
  refused(attune_model_open(engine, test_data("gemma4-tiny").c_str(), &options, &model),
          "weights=9");
  options.weights = ATTUNE_WEIGHTS_BF16;
  options.max_verify = 99;
  refused(attune_model_open(engine, test_data("gemma4-tiny").c_str(), &options, &model), "99");
  options.max_verify = 4;
  options.struct_size = 3;
  refused(attune_model_open(engine, test_data("gemma4-tiny").c_str(), &options, &model),
          "struct_size");
  options.struct_size = sizeof(options);
  model = open_tiny();
  ASSERT_NE(model, nullptr);
  attune_generator* generator = nullptr;
  refused(attune_generator_create(model, 9, nullptr, &generator), "draft=9");
  refused(attune_generator_create(model, ATTUNE_DRAFT_EAGLE3, nullptr, &generator),
          "attune_model_options.eagle3");
  refused(attune_model_set_tokens(model, nullptr, 3, nullptr), "tokens=NULL");
  const int32_t wrong[] = {320};
  refused(attune_model_set_tokens(model, wrong, 1, nullptr), "id=320");
  float logit = 0;
  refused(attune_model_read_logits(model, 5, &logit, nullptr), "rows=5");
  ok(attune_generator_create(model, ATTUNE_DRAFT_NGRAM, nullptr, &generator));
  attune_generate_options run = run_options();
  refused(attune_generator_run(generator, nullptr, 0, &run, nullptr), "prompt");
  run.chain = 4;
  refused(attune_generator_run(generator, ids_.data(), 5, &run, nullptr), "chain=4");
  run.chain = 3;
  run.reserved = 1;
  refused(attune_generator_run(generator, ids_.data(), 5, &run, nullptr),
          "attune_generate_options.reserved=1");
  run.reserved = 0;
  for (const std::size_t size : {std::size_t{0}, sizeof(run) - 8, 65 * sizeof(run)}) {
    run.struct_size = size;
    refused(attune_generator_run(generator, ids_.data(), 5, &run, nullptr),
            "attune_generate_options.struct_size");
  }
  run.struct_size = sizeof(run);
  attune_model_info info{};
  refused(attune_model_get_info(model, &info), "attune_model_info.struct_size");
  attune_generate_result result{};
  refused(attune_generator_run(generator, ids_.data(), 5, &run, &result), "struct_size");
  ok(attune_generator_run(generator, ids_.data(), 5, &run, nullptr));
  attune_generator_destroy(generator);
  attune_model_destroy(model);
  attune_model_destroy(nullptr);
  attune_generator_destroy(nullptr);
  attune_model_session_close(nullptr);
}

}  // namespace
}  // namespace attune
