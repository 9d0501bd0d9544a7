// `attune generate` with the tiny checkpoint on the CPU.
#include "runtime/token_file.h"
#include "tests/cli/host_program.h"
#include "tests/cli/tiny_models.h"
#include "tests/support/test_data.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

// Its continuation repeats what stood before, so n-grams find proposals.
const std::vector<std::int32_t> kRepetitive = {2, 17, 17, 17, 17, 17};

class GenerateProgram : public HostProgramTest {
 protected:
  // A copy of the tiny checkpoint, to be spoiled.
  fs::path copy_of_model() {
    const fs::path copy = folder_ / "model";
    fs::copy(test_data("gemma4-tiny"), copy);
    for (const auto& entry : fs::directory_iterator(copy)) {
      fs::permissions(entry, fs::perms::owner_write, fs::perm_options::add);
    }
    return copy;
  }
  std::string tokens_file(const std::vector<std::int32_t>& tokens) {
    const fs::path file = folder_ / "prompt.txt";
    write_token_file(file, tokens);
    return file.string();
  }
  Finished generate(const fs::path& model, const std::string& tokens,
                    std::vector<std::string> more) {
    std::vector<std::string> arguments = {"generate", "--model",   model.string(),
                                          "--device", "host",      "--tokens-file",
                                          tokens,     cache_flag()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  // Five tokens of the tiny checkpoint.
  std::vector<std::string> arguments(const std::vector<std::string>& more) {
    std::vector<std::string> all = {"generate",
                                    "--model",
                                    test_data("gemma4-tiny").string(),
                                    "--device",
                                    "host",
                                    "--tokens-file",
                                    tokens_file(kRepetitive),
                                    "--max-new-tokens",
                                    "5",
                                    "--ignore-eos",
                                    cache_flag()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Finished generate(const std::vector<std::string>& more) { return run(arguments(more)); }

  void expect_end_behind_loading(const Running& running) {
    const auto loads = [&] {
      return read_file(running.err).find("load 0/1, ") != std::string::npos;
    };
    for (int i = 0; i < 2000 && !loads(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    kill(running.pid, SIGINT);
    const Finished finished = running.wait();
    EXPECT_EQ(finished.exit_code, 130) << finished.err;
    EXPECT_EQ(finished.out, "");
    EXPECT_EQ(finished.err.find("tokens behind"), std::string::npos) << finished.err;
  }
  void expect_head_report(const nlohmann::json& json) {
    EXPECT_EQ(json["chain"], 2);
    EXPECT_EQ(json["acceptance_by_position"].size(), 2U);
    EXPECT_GT(json["draft_ms_per_round"], 0);
    // fc of three taps, q, k, v and o of 2 heads and 1 of 64, the MLP and the head.
    const int matrices = 64 * (3 * 64 + 2 * (128 + 64 + 64) + 128 + 3 * 96 + 80);
    EXPECT_GT(json["memory_bytes"]["draft_weights"], 2 * matrices);
    EXPECT_LT(json["memory_bytes"]["draft_weights"], 2 * matrices + 4096);
    EXPECT_GE(json["memory_bytes"]["draft_cache"], 2 * 2 * 64 * 11);  // K and V of 11 tokens
  }
  void expect_usage(const Finished& finished, const std::string& words) {
    EXPECT_EQ(finished.exit_code, 2) << finished.err;
    EXPECT_NE(finished.err.find(words), std::string::npos) << finished.err;
    EXPECT_EQ(finished.out, "");
  }
};

// One test, so that the first run compiles for all: Ctrl-C while it loads, a plain run, drafters, a
// full disk.
TEST_F(GenerateProgram, GivesTheSameTokensWhateverIsDrafted) {
  expect_end_behind_loading(start(arguments({})));

  const std::string out = (folder_ / "new.bin").string();
  const Finished plain = generate({"--json", "--tokens-out", out});
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  const auto json = plain.json();
  EXPECT_EQ(json["tokens"].size(), 5U);
  EXPECT_EQ(json["prompt_tokens"], kRepetitive.size());
  EXPECT_EQ(json["end"], "max_new_tokens");
  EXPECT_EQ(json["rounds"], 4);
  EXPECT_GT(json["memory_bytes"]["weights"], 5'000'000);
  EXPECT_FALSE(json["memory_bytes"].contains("draft_weights"));
  EXPECT_EQ(json["tokens"], nlohmann::json(read_token_file(out)));

  const Finished drafted = generate({"--draft", "ngram", "--chain", "3", "--cuda-graph", "off"});
  ASSERT_EQ(drafted.exit_code, 0) << drafted.err;
  std::string ids;
  for (const int id : json["tokens"]) ids += std::to_string(id) + " ";
  EXPECT_EQ(drafted.out, ids + "\n");
  EXPECT_NE(drafted.err.find("accepted by position: "), std::string::npos) << drafted.err;

  write_head(folder_ / "head", {1, 3, 5});
  const Finished with_head =
      generate({"--draft", (folder_ / "head").string(), "--chain", "2", "--json"});
  ASSERT_EQ(with_head.exit_code, 0) << with_head.err;
  EXPECT_EQ(with_head.json()["tokens"], json["tokens"]);
  expect_head_report(with_head.json());

  const Finished full = generate({"--json", "--tokens-out", "/dev/full"});
  EXPECT_EQ(full.exit_code, 2);
  EXPECT_NE(full.err.find("cannot write the token file"), std::string::npos) << full.err;
  EXPECT_EQ(full.json()["tokens"], json["tokens"]);
}

TEST_F(GenerateProgram, SaysBeforeItLoadsThatItCannotWriteTokens) {
  const Finished finished = generate(test_data("gemma4-tiny"), tokens_file({2, 17, 250}),
                                     {"--tokens-out", (folder_ / "none" / "new.bin").string()});
  EXPECT_EQ(finished.exit_code, 1) << finished.err;
  EXPECT_NE(finished.err.find("cannot write the file: path="), std::string::npos) << finished.err;
  EXPECT_EQ(finished.err.find("load"), std::string::npos) << finished.err;
}

TEST_F(GenerateProgram, SaysWhatIsWrongWithARequest) {
  const fs::path model = test_data("gemma4-tiny");
  const std::string prompt = tokens_file({2, 17, 250});
  expect_usage(run({"generate", "--prompt", "a"}), "pass one of --model DIR and --random-weights");
  expect_usage(run({"generate", "--model", model.string()}), "pass one of --prompt TEXT and");
  expect_usage(run({"generate", "--model", model.string(), "--prompt", "hello"}), "tokenizer");
  expect_usage(generate(model, prompt, {"--random-weights", "config.json"}),
               "--model excludes --random-weights");
  expect_usage(generate(model, prompt, {"--prompt", "hello"}), "--prompt excludes --tokens-file");
  expect_usage(generate(model, prompt, {"--raw-prompt"}), "--raw-prompt requires --prompt");
  expect_usage(generate(model, prompt, {"--chain", "3"}),
               "a chain without a drafter: chain=3; leave --chain out, or pass --draft ngram");
  expect_usage(generate(model, prompt, {"--chain", "0"}), "--chain");
  expect_usage(generate(model, prompt, {"--chain", "99"}), "--chain");
  expect_usage(generate(model, prompt, {"--temperature", "-1"}), "temperature=-1");
  expect_usage(generate(model, prompt, {"--max-tokens", "3"}), "the prompt does not fit");
  expect_usage(generate(model, tokens_file({2, 320}), {}), "320");
  expect_usage(generate(model, (folder_ / "none.txt").string(), {}), "none.txt");
  expect_usage(generate(model, prompt, {"--draft", (folder_ / "head").string()}), "head");
}

TEST_F(GenerateProgram, SaysWhatIsWrongWithACheckpoint) {
  const std::string prompt = tokens_file({2, 17, 250});
  const fs::path model = copy_of_model();
  const fs::path weights = model / "model.safetensors";
  fs::resize_file(weights, fs::file_size(weights) - 1000);
  expect_usage(generate(model, prompt, {}), "model.safetensors");
  fs::remove(weights);
  expect_usage(generate(model, prompt, {}), "model");
  std::ofstream(model / "config.json") << R"({"model_type": "llama"})";
  expect_usage(generate(model, prompt, {}), "llama");
}

}  // namespace
}  // namespace attune
