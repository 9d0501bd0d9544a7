// attune tune without a GPU: compiles and stores, resumes, ends on Ctrl-C.
#include "tests/cli/program.h"
#include "tests/support/require_nvrtc.h"

namespace attune {
namespace {

constexpr const char* kSmall = "decode/b1/q1/kv1-1024/h8x2/d64/contiguous/bf16";

class CompileOnly : public ProgramTest {
 protected:
  void SetUp() override {
    try {
      open_compiler({.nvrtc = test_nvrtc_search()}, "sm_90a");
    } catch (const DeviceUnavailable& error) {
      if (is_required("ATTUNE_REQUIRE_NVRTC")) FAIL() << error.what();
      GTEST_SKIP() << error.what();
    }
  }
  Finished compile(std::vector<std::string> more = {"--problem", kSmall}) {
    return run(arguments(std::move(more)));
  }
  std::vector<std::string> arguments(std::vector<std::string> more) {
    std::vector<std::string> all = {"tune",   "--compile-only", "--arch", "sm_90a",
                                    "--json", "--jobs",         "2",      cache_flag()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  int stored_binaries() {
    return run({"cache", "stats", "--json", cache_flag()}).json()["binaries"];
  }
};

TEST_F(CompileOnly, StoresBinariesAndTheSecondRunCompilesNothing) {
  const Finished first = compile();
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const auto json = first.json();
  EXPECT_EQ(json["state"], "compiled");
  EXPECT_GT(json["compiled"], 0);
  EXPECT_EQ(json["binaries"], json["compiled"]);
  EXPECT_EQ(json["timed"], 0);
  EXPECT_EQ(stored_binaries(), json["binaries"]);

  const Finished second = compile();
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(second.json()["compiled"], 0);
  EXPECT_EQ(second.json()["binaries"], json["binaries"]);
}

TEST_F(CompileOnly, IsWhatHappensWithoutAGpuAndIsSaid) {
  const Finished finished = run({"tune", "--problem", kSmall, cache_flag()});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_NE(finished.err.find("no usable GPU: compiling every candidate for sm_90a"),
            std::string::npos)
      << finished.err;
  EXPECT_TRUE(finished.out.starts_with("compiled for sm_90a only, nothing is verified or timed"))
      << finished.out;
}

TEST_F(CompileOnly, StopsOnCtrlCAndTheNextRunGoesOn) {
  const std::vector<std::string> preset = {"--preset", "gemma4-31b"};
  const Running running = start(arguments(preset));
  // It has something to keep once the first progress line is there.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (read_file(running.err).find("compile ") == std::string::npos &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const auto pressed = std::chrono::steady_clock::now();
  kill(running.pid, SIGINT);
  const Finished stopped = running.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - pressed, std::chrono::seconds(5));
  ASSERT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_EQ(stopped.json()["interrupted"], true);
  const int kept = stored_binaries();
  EXPECT_GT(kept, 0);

  const Finished next = compile({"--preset", "gemma4-31b", "--budget", "5s"});
  EXPECT_EQ(next.exit_code, 4) << next.err;
  EXPECT_EQ(next.json()["binaries"], kept + static_cast<int>(next.json()["compiled"]));
}

TEST_F(CompileOnly, ReportsAMissingNvrtcWithAllPlaces) {
  more_environment_ = {"ATTUNE_NVRTC=/nowhere"};  // the first one of a name counts
  const Finished finished = compile();
  EXPECT_EQ(finished.exit_code, 3);
  EXPECT_NE(finished.err.find("/nowhere"), std::string::npos) << finished.err;
}

}  // namespace
}  // namespace attune
