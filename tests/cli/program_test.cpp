// The program as a user runs it: help, exit codes, what goes to stdout and what to stderr.
#include "tests/cli/program.h"
#include "tests/support/test_data.h"

namespace attune {
namespace {

constexpr const char* kProblem = "decode/b1/q1/kv1-1024/h8x2/d128/contiguous/bf16";

class Program : public ProgramTest {};

TEST_F(Program, HelpOfEveryCommandHasExamples) {
  const std::vector<std::vector<std::string>> commands = {
      {}, {"tune"}, {"cache"}, {"bench"}, {"explain"}, {"doctor"}, {"report"}};
  for (auto arguments : commands) {
    arguments.push_back("--help");
    const Finished finished = run(arguments);
    EXPECT_EQ(finished.exit_code, 0) << arguments.front();
    EXPECT_NE(finished.out.find("Examples:"), std::string::npos) << arguments.front();
    EXPECT_EQ(finished.err, "");
  }
}

TEST_F(Program, TellsItsVersion) {
  const Finished finished = run({"--version"});
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_TRUE(finished.out.starts_with("attune 0.")) << finished.out;
}

TEST_F(Program, WrongUseExitsWithTwoAndOneLine) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"tuna"},
      {"tune", "--bogus"},
      {"tune", "--problem", "nonsense"},
      {"tune", "--preset", "no-such-model"},
      {"tune", "--preset", "gemma4-31b", "--problem", kProblem},
      {"tune", "--problem", kProblem, "--budget", "soon"},
      {"tune", "--compile-only", "--arch", "sm_1", "--problem", kProblem},
      {"tune", "--compile-only", "--device", "0"},
      {"tune", "--preset", "gemma4-31b", "--tp", "3"},
      {"tune", "--check", "--shard", "4/4"},
      {"tune", "--check", "--problem", "nonsense"},
      {"tune", "--check", "--budget", "soon", "--problem", kProblem},
      {"tune", "--candidate-timeout", "soon", "--device", "0", "--problem", kProblem},
      {"tune", "--measure-only", "--candidate-timeout", "soon", "--problem", kProblem},
      {"tune", "--arch", "sm_1", "--problem", kProblem},
      {"cache", "prune", "--problem", "nonsense"},
      {"cache", "prune", "--max-size", "much"},
      {"tune", "--effort", "some"},
      {"tune", "--jobs", "0"},
      {"tune", "--device", "-1"},
      {"tune", "--device", "cpu"},
      {"bench", kProblem, "--device", "host+"},
      {"doctor", "--device", "host", "--no-gpu"},
      {"check", "nonsense"},
      {"check", kProblem, "--candidate", "splitkv/m16n16s1w3/x1"},
      {"cache"},
      {"cache", "show"},
      {"cache", "show", "nonsense"},
      {"explain", kProblem, "--arch", "sm_1"},
      {"explain", kProblem, "--arch", "sm_90a", "--device", "0"},
      {"bench", kProblem, "--kv", "x"},
      {"bench", kProblem, "--kv", "4096"},
      {"bench", kProblem, "--lengths", "x"},
      {"bench", kProblem, "--lengths", "512,512"},
      {"bench", kProblem, "--lengths", "4096"},
      {"bench", kProblem, "--lengths", "512", "--kv", "512"},
      {"bench", kProblem, "--lengths", "512", "--register-rule"},
  };
  for (const auto& arguments : wrong) {
    const Finished finished = run(arguments);
    const std::string what = arguments.empty() ? "" : ::testing::PrintToString(arguments);
    EXPECT_EQ(finished.exit_code, 2) << what << finished.err;
    EXPECT_EQ(finished.out, "") << what;
    EXPECT_TRUE(finished.err.starts_with("attune: ")) << what << finished.err;
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
  }
  EXPECT_FALSE(std::filesystem::exists(cache()));
}

TEST_F(Program, AGpuThatIsAskedForAndIsNotThereExitsWithThree) {
  for (const char* command : {"tune", "bench"}) {
    const Finished finished = run({command, kProblem, "--device", "0", cache_flag()});
    EXPECT_EQ(finished.exit_code, 3) << finished.err;
    EXPECT_EQ(finished.out, "");
  }
}

TEST_F(Program, AWrongVariableOfTheEnvironmentIsWrongUse) {
  for (const char* variable : {"ATTUNE_CACHE_MAX_SIZE=much", "ATTUNE_DISABLE_FAMILIES=spiltkv"}) {
    more_environment_ = {variable};
    const std::string name = std::string(variable).substr(0, std::string(variable).find('='));
    for (const char* command : {"list", "path"}) {
      const Finished finished = run({"cache", command, cache_flag()});
      EXPECT_EQ(finished.exit_code, 2) << finished.err;
      EXPECT_TRUE(finished.err.starts_with("attune: cannot use " + name)) << finished.err;
    }
  }
}

TEST_F(Program, ABenchRefusesFlagsThatItWouldIgnore) {
  const std::string config = test_data("gemma4-configs/31b-newer.json").string();
  const std::vector<std::vector<std::string>> of_problems = {
      {kProblem},         {"--problem", kProblem}, {"--preset", "gemma4-31b"},
      {"--tp", "2"},      {"--kv", "512"},         {"--lengths", "512"},
      {"--csv", "a.csv"}, {"--register-rule"},     {"--candidate", "splitkv/m16n16s1w1/x1"}};
  const std::vector<std::vector<std::string>> of_models = {
      {"--context", "512"}, {"--tokens", "1"}, {"--weights", "int4"}, {"--invariant"}};
  const auto expect_refusal = [&](std::vector<std::string> arguments,
                                  const std::vector<std::string>& more, const std::string& words) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished finished = run(arguments);
    EXPECT_EQ(finished.exit_code, 2) << ::testing::PrintToString(arguments) << finished.err;
    EXPECT_NE(finished.err.find(words), std::string::npos) << finished.err;
    if (more.front().starts_with("--")) {
      EXPECT_NE(finished.err.find("flag=" + more.front()), std::string::npos) << finished.err;
    }
  };
  for (const auto& more : of_problems) {
    expect_refusal({"bench", "--random-weights", config}, more, "a flag of problems with a model");
  }
  for (const auto& more : of_models) {
    expect_refusal({"bench", kProblem}, more, "a flag of models without a model");
  }
  EXPECT_FALSE(std::filesystem::exists("a.csv"));
}

TEST_F(Program, ABenchRefusesStepsThatAModelHasNot) {
  const std::string config = test_data("gemma4-configs/31b-newer.json").string();
  const auto error_of = [&](const char* contexts, const char* tokens) {
    const Finished finished =
        run({"bench", "--random-weights", config, "--context", contexts, "--tokens", tokens});
    EXPECT_EQ(finished.exit_code, 2) << finished.err;  // 3 where it looks for a GPU
    return finished.err;
  };
  EXPECT_NE(error_of("512,262144", "1,8").find("context=262144 tokens=8"), std::string::npos);
  EXPECT_NE(error_of("512", "17").find("tokens=17"), std::string::npos);
}

TEST_F(Program, TheEnvironmentNamesADeviceToo) {
  more_environment_ = {"ATTUNE_DEVICE=cpu"};
  for (const char* command : {"tune", "bench", "explain"}) {
    const Finished finished = run({command, kProblem, cache_flag()});
    EXPECT_EQ(finished.exit_code, 2) << finished.err;
    EXPECT_NE(finished.err.find("device='cpu'; use the number of a GPU"), std::string::npos)
        << finished.err;
  }
  more_environment_ = {"ATTUNE_DEVICE=host"};
  const auto json = run({"explain", kProblem, "--json", cache_flag()}).json();
  EXPECT_EQ(json["gpu"]["arch"], "host");
}

TEST_F(Program, ABenchThatCannotRunLeavesAnEarlierCsvAsItWas) {
  const auto csv = folder_ / "results.csv";
  std::ofstream(csv) << "kept\n";
  EXPECT_EQ(run({"bench", kProblem, "--csv", csv.string(), cache_flag()}).exit_code, 3);
  std::string text;
  std::getline(std::ifstream(csv), text);
  EXPECT_EQ(text, "kept");
}

TEST_F(Program, WrongLengthsOfABatchAreNamedWithWhatIsAllowed) {
  const auto error_of = [&](const char* lengths) {
    return run({"bench", "verify/b2/q8/kv1-1024/h8x2/d128/contiguous/bf16", "--lengths", lengths})
        .err;
  };
  EXPECT_NE(error_of("512,512,512").find("lengths=3 batch=2"), std::string::npos)
      << error_of("512,512,512");
  EXPECT_NE(error_of("512,2048").find("kv_len=2048"), std::string::npos);
  EXPECT_NE(error_of("512,2048").find("take lengths from 1 to 1024"), std::string::npos);
  EXPECT_NE(error_of("512,7").find("length=7 seqlen_q=8"), std::string::npos);
  EXPECT_NE(error_of("512,7").find("take lengths from 8 to 1024"), std::string::npos);
}

TEST_F(Program, AnUnknownPresetListsTheKnownOnes) {
  const Finished finished = run({"tune", "--preset", "gemma5"});
  EXPECT_NE(finished.err.find("gemma4-26b-a4b, gemma4-26b-a4b-linear, gemma4-31b, "),
            std::string::npos)
      << finished.err;
}

TEST_F(Program, AWrongPresetFileNamesLineAndKey) {
  std::ofstream(folder_ / "mine.yaml") << "model: m\ndtype: bf16\nbatch: [one]\n";
  const Finished finished = run({"tune", "--preset", (folder_ / "mine.yaml").string()});
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_NE(finished.err.find("mine.yaml:3: batch: 'one' is not a number"), std::string::npos)
      << finished.err;
}

TEST_F(Program, DoctorWithoutGpuReportsCompilerAndCache) {
  const Finished finished = run({"doctor", "--no-gpu", "--json", cache_flag()});
  const auto json = finished.json();
  EXPECT_EQ(finished.exit_code, json["exit_code"]);
  EXPECT_EQ(json["gpu_checked"], false);
  EXPECT_EQ(json["cache"]["path"], cache().string());
  EXPECT_EQ(json["cache"]["exists"], false);
  EXPECT_EQ(json["cache"]["writable"], true);
  EXPECT_EQ(json["worker"]["problem"], "");
  EXPECT_GE(json["worker"]["workers"], 1);
  const bool has_nvrtc = json["nvrtc"]["problem"] == "";
  EXPECT_EQ(finished.exit_code, has_nvrtc ? 0 : 1) << finished.out;
  EXPECT_FALSE(std::filesystem::exists(cache()));
}

// It costs prefills their speed and breaks nothing.
TEST_F(Program, DoctorTellsOfALibraryForPrefillsThatIsMissing) {
  more_environment_ = {"ATTUNE_CUBLASLT=/nowhere"};
  const Finished text = run({"doctor", "--no-gpu", cache_flag()});
  EXPECT_NE(
      text.out.find("cublaslt     models prefill 16 tokens a pass over their weights: no cuBLASLt "
                    "library at the given place: looked in "),
      std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find("environment  ATTUNE_CUBLASLT=/nowhere"), std::string::npos);
  more_environment_ = {"ATTUNE_CUBLASLT=off"};
  const auto json = run({"doctor", "--no-gpu", "--json", cache_flag()}).json();
  EXPECT_EQ(json["cublaslt"]["problem"], "ATTUNE_CUBLASLT=off");
  EXPECT_EQ(json["cublaslt"]["path"], "");
  EXPECT_EQ(json["exit_code"], json["nvrtc"]["problem"] == "" ? 0 : 1);
}

TEST_F(Program, DoctorWithoutADriverExitsWithThreeOrSaysWhatElseIsBroken) {
  const Finished finished = run({"doctor", cache_flag()});
  EXPECT_TRUE(finished.exit_code == 3 || finished.exit_code == 1) << finished.out;
  EXPECT_NE(finished.out.find("driver       "), std::string::npos);
}

TEST_F(Program, DoctorCallsAFileThatIsNoCacheBroken) {
  std::filesystem::create_directories(cache().parent_path());
  std::filesystem::create_directories(cache());  // a folder in its place
  const Finished finished = run({"doctor", "--no-gpu", cache_flag()});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_NE(finished.out.find("something is broken"), std::string::npos) << finished.out;
}

TEST_F(Program, ExplainForAnArchitectureNeedsNoGpu) {
  const Finished text = run({"explain", kProblem, "--arch", "sm_90a", cache_flag()});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("(default): no winner answers"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find(std::string("tune it: attune tune --problem '") + kProblem),
            std::string::npos);
  const auto json = run({"explain", kProblem, "--arch", "sm_80", "--json", cache_flag()}).json();
  EXPECT_EQ(json["match"], "default");
  EXPECT_EQ(json["gpu"]["arch"], "sm_80");
  EXPECT_GT(json["candidates"].size(), 10U);
}

TEST_F(Program, AResultThatCannotBeWrittenIsAnError) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full";
  const std::string command =
      attune_program().string() + " cache path " + cache_flag() + " >/dev/full 2>/dev/null";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
}

}  // namespace
}  // namespace attune
