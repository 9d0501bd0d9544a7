// `attune bench` and `attune generate` with a model of random weights, on the CPU.
#include "tests/cli/host_program.h"
#include "tests/cli/tiny_models.h"

namespace attune {
namespace {

// Rows of 64 columns: q, k, v of 4 and 2 heads of 64 and of 128, gate and up of each layer, the head.
constexpr int kRowsOf64 = (256 + 128 + 128 + 96 + 96) + (512 + 256 + 256 + 96 + 96) + 320;
// o_proj has 256 and 512 columns, down_proj 96; 64 rows each.
constexpr int kOtherColumns = 256 + 512 + 96 + 96;
// Panels of 256 columns: one, two, one, one.
constexpr int kOtherPanels = 1 + 2 + 1 + 1;
constexpr int kVectors = 2 * 4 * 64 + 2 * 64 + 2 * 128 + 2 + 64;  // norms and scalars

class RandomModelProgram : public HostProgramTest {
 protected:
  // The JSON of a command with the model; null where it failed.
  nlohmann::json run_model(const std::string& command, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {command, "--random-weights", config_,     "--device",
                                          "host",  "--json",           cache_flag()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished finished = run(arguments);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    return finished.exit_code == 0 ? finished.json() : nlohmann::json();
  }
  nlohmann::json bench(std::vector<std::string> more) {
    more.insert(more.end(), {"--context", "8", "--tokens", "2,1"});
    const auto json = run_model("bench", more);
    EXPECT_EQ(json["points"].size(), 2U);
    for (int tokens = 1; const auto& point : json["points"]) {
      EXPECT_EQ(point["context"], 8);
      EXPECT_EQ(point["tokens"], tokens++);
      EXPECT_GT(point["step_us"], 0);
      EXPECT_GT(point["floor_us"], 0);
    }
    return json;
  }
  nlohmann::json generate(std::vector<std::string> more) {
    const std::string prompt = folder_.write("prompt.txt", "2 17 250").string();
    more.insert(more.end(), {"--tokens-file", prompt, "--max-new-tokens", "4", "--ignore-eos"});
    return run_model("generate", more);
  }

  std::string config_;
};

// One test, so that the first run compiles for all.
TEST_F(RandomModelProgram, TimesAndGeneratesWithBothKindsOfWeights) {
  config_ = write_two_layers(folder_.path()).string();
  const auto packed = bench({"--weights", "int4", "--invariant"});
  EXPECT_EQ(packed["weight_bytes"], 144 * (kRowsOf64 + 64 * kOtherPanels) + 2 * kVectors);

  const auto plain = generate({"--weights", "int4"});
  EXPECT_EQ(plain["tokens"].size(), 4U);
  const std::string head = folder_.write("head.json", head_config({0, 1, 2}).dump()).string();
  const auto drafted = generate({"--weights", "int4", "--draft", head, "--chain", "1"});
  EXPECT_EQ(drafted["tokens"], plain["tokens"]);
  EXPECT_EQ(drafted["acceptance_by_position"].size(), 1U);
  EXPECT_GT(drafted["memory_bytes"]["draft_weights"], 0);

  const auto dense = bench({"--invariant", "--prefill", "20", "--max-prefill", "9"});
  EXPECT_EQ(dense["weight_bytes"], 2 * (64 * (kRowsOf64 + kOtherColumns) + kVectors));
  const auto& prefill = dense["prefill"];
  EXPECT_EQ(prefill["tokens"], 20);
  EXPECT_EQ(prefill["chunk"], 9);
  EXPECT_EQ(prefill["by"], "linear.cuh, 16 tokens a pass");
  EXPECT_GT(prefill["floor_us"], 0);
  EXPECT_DOUBLE_EQ(prefill["tokens_per_s"], 20e6 / double(prefill["us"]));
  EXPECT_TRUE(packed["prefill"].is_null());
  // A prompt shorter than a chunk is one of its own length.
  const auto few = bench({"--invariant", "--prefill", "5", "--max-prefill", "9"})["prefill"];
  EXPECT_EQ(few["chunk"], 5);

  // A model of another kind, whose attention has the same kernels.
  config_ = write_four_layers(folder_.path()).string();
  const auto mixed = bench({"--invariant"});
  EXPECT_GT(mixed["weight_bytes"], dense["weight_bytes"]);
  const auto alone = generate({"--weights", "int4"});
  EXPECT_EQ(alone["tokens"].size(), 4U);
  EXPECT_EQ(generate({"--weights", "int4", "--draft", "ngram"})["tokens"], alone["tokens"]);
}

}  // namespace
}  // namespace attune
