// `attune generate` with the tiny checkpoint on the CPU.
#include "runtime/token_file.h"
#include "tests/cli/host_program.h"
#include "tests/support/test_data.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

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
  void expect_usage(const Finished& finished, const std::string& words) {
    EXPECT_EQ(finished.exit_code, 2) << finished.err;
    EXPECT_NE(finished.err.find(words), std::string::npos) << finished.err;
    EXPECT_EQ(finished.out, "");
  }
};

TEST_F(GenerateProgram, GivesTheSameTokensWithAndWithoutADrafter) {
  const fs::path model = test_data("gemma4-tiny");
  const std::string prompt = tokens_file({2, 17, 250, 33, 8, 199, 64, 5, 101, 77});
  const std::string out = (folder_ / "new.bin").string();
  const Finished plain = generate(
      model, prompt, {"--max-new-tokens", "6", "--ignore-eos", "--json", "--tokens-out", out});
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  const auto json = plain.json();
  EXPECT_EQ(json["tokens"].size(), 6U);
  EXPECT_EQ(json["prompt_tokens"], 10);
  EXPECT_EQ(json["end"], "max_new_tokens");
  EXPECT_EQ(json["rounds"], 5);
  EXPECT_GT(json["memory_bytes"]["weights"], 5'000'000);
  EXPECT_EQ(json["tokens"], nlohmann::json(read_token_file(out)));

  const Finished drafted = generate(model, prompt,
                                    {"--max-new-tokens", "6", "--ignore-eos", "--draft", "ngram",
                                     "--chain", "3", "--cuda-graph", "off"});
  ASSERT_EQ(drafted.exit_code, 0) << drafted.err;
  std::string ids;
  for (const int id : json["tokens"]) ids += std::to_string(id) + " ";
  EXPECT_EQ(drafted.out, ids + "\n");
  EXPECT_NE(drafted.err.find("accepted by position:"), std::string::npos) << drafted.err;
}

TEST_F(GenerateProgram, SaysWhatIsWrongWithARequest) {
  const fs::path model = test_data("gemma4-tiny");
  const std::string prompt = tokens_file({2, 17, 250});
  expect_usage(run({"generate", "--prompt", "a"}), "pass one of --model DIR and --random-weights");
  expect_usage(run({"generate", "--model", model.string()}), "pass one of --prompt TEXT and");
  expect_usage(run({"generate", "--model", model.string(), "--prompt", "hello"}), "tokenizer");
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
