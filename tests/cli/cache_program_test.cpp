// attune cache and attune explain as programs, on a cache with made-up results.
#include "tests/cli/made_up_results.h"
#include "tests/cli/program.h"

namespace attune {
namespace {

class CacheProgram : public ProgramTest {
 protected:
  void fill() {
    const auto store = TuneStore::open(cache());
    store_made_up_winner(*store);
    store_made_up_winner(*store, "decode/b2/q1/kv1-4096/h8x2/d128/contiguous/bf16");
  }
};

TEST_F(CacheProgram, PathFollowsTheFlagAndTheEnvironment) {
  EXPECT_EQ(run({"cache", "path", cache_flag()}).out, cache().string() + "\n");
  EXPECT_EQ(run({"cache", "path"}).out, (folder_ / "xdg/attune/tune.db").string() + "\n");
  EXPECT_EQ(run({"cache", "path", "--json", cache_flag()}).json()["path"], cache().string());
}

TEST_F(CacheProgram, ReadingDoesNotCreateACache) {
  for (const char* command : {"list", "stats"}) {
    const Finished finished = run({"cache", command, cache_flag()});
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_NE(finished.err.find("there is no cache yet"), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(cache()));
}

TEST_F(CacheProgram, ListShowsEveryWinnerWithItsTime) {
  fill();
  const Finished text = run({"cache", "list", cache_flag()});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_NE(text.out.find(std::string("NVIDIA H200 (sm_90a)  ") + kTuned), std::string::npos);
  EXPECT_NE(text.out.find("4096     5.00  0.11         21.0%"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("current"), std::string::npos);
  EXPECT_NE(text.out.find("\n2 winners\n"), std::string::npos);
  const auto json = run({"cache", "list", "--json", cache_flag()}).json();
  ASSERT_EQ(json["winners"].size(), 2U);
  EXPECT_EQ(json["winners"][0]["measurements"].size(), 13U);
  EXPECT_EQ(json["winners"][0]["state"], "current");
}

TEST_F(CacheProgram, ListFiltersAndSorts) {
  const std::string other = "decode/b2/q1/kv1-4096/h8x2/d128/contiguous/bf16";
  {
    const auto store = TuneStore::open(cache());
    store_made_up_winner(*store);
    Winner slow = store_made_up_winner(*store, other);
    for (Measurement& point : slow.measurements) point.median_us = 99;
    slow.measurements[0].provisional = true;
    slow.margin_default = 0.5;
    slow.created_at = "2025-03-01T00:00:00Z";
    slow.method = kTimingMethod - 1;
    store->put_winner(made_up_gpu(), slow);
    store_made_up_winner(*store, kTuned, made_up_gpu("NVIDIA H100"));
  }
  const auto problems = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"cache", "list", "--json", cache_flag()});
    const Finished finished = run(flags);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    std::vector<std::string> texts;
    const auto json = finished.json();
    for (const auto& winner : json["winners"]) {
      texts.push_back(winner["gpu"].get<std::string>().substr(7, 4) + " " +
                      winner["problem"].get<std::string>());
    }
    return texts;
  };
  using Texts = std::vector<std::string>;
  const std::string h100 = std::string("H100 ") + kTuned, h200 = std::string("H200 ") + kTuned,
                    slow = "H200 " + other;
  EXPECT_EQ(problems({}), (Texts{h100, h200, slow}));
  EXPECT_EQ(problems({"--gpu", "H100"}), Texts{h100});
  EXPECT_EQ(problems({other}), Texts{slow});
  EXPECT_EQ(problems({"--preset", "gemma4-31b"}), Texts{});
  EXPECT_EQ(problems({"--state", "older method"}), Texts{slow});
  EXPECT_EQ(problems({"--state", "provisional"}), Texts{slow});
  EXPECT_EQ(problems({"--state", "current", "--gpu", "H200"}), Texts{h200});
  EXPECT_EQ(problems({"--sort", "gain"}), (Texts{slow, h100, h200}));
  EXPECT_EQ(problems({"--sort", "age"}), (Texts{slow, h100, h200}));
  EXPECT_EQ(problems({"--sort", "time"}), (Texts{h100, h200, slow}));
  EXPECT_EQ(problems({"--sort", "state"}), (Texts{h100, h200, slow}));
  EXPECT_EQ(problems({"--sort", "time", "--reverse"}), (Texts{slow, h200, h100}));
  EXPECT_EQ(problems({"--sort", "problem"}), (Texts{h100, h200, slow}));
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {"--sort", "size"}, {"--state", "good"}, {"--gpu", "H999"}, {"nonsense"}}) {
    auto flags = wrong;
    flags.insert(flags.begin(), {"cache", "list", cache_flag()});
    EXPECT_EQ(run(flags).exit_code, 2) << ::testing::PrintToString(wrong);
  }
}

TEST_F(CacheProgram, ShowTellsEverythingAboutOneProblem) {
  fill();
  const Finished text = run({"cache", "show", kTuned, cache_flag()});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  for (const char* part : {"relative L2 1.90e-03", "NVRTC 99.9", "of 3 timed candidates",
                           "at verify: 1 candidates (wrong result 1)", "takes 21.0% longer"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
  }
  const auto json = run({"cache", "show", kTuned, "--json", cache_flag()}).json();
  EXPECT_EQ(json["winners"][0]["rejections"]["verify"]["wrong_result"], 1);
  EXPECT_EQ(json["winners"][0]["timed_candidates"], 3);
}

TEST_F(CacheProgram, ShowTellsOfARunnerUpWithLessRegret) {
  {
    const auto store = TuneStore::open(cache());
    Winner winner = store_made_up_winner(*store);
    winner.binary.cubin = {std::byte{1}};
    winner.binary.content = digest_of(winner.binary.cubin);
    winner.margin_runner_up = -0.02;
    store->put_winner(made_up_gpu(), winner);
  }
  const Finished text = run({"cache", "show", kTuned, cache_flag()});
  EXPECT_NE(text.out.find(", regret 2.0% less, but not surely faster\n"), std::string::npos)
      << text.out;
}

TEST_F(CacheProgram, ShowOfAnUntunedProblemSaysHowToTuneIt) {
  fill();
  const Finished finished =
      run({"cache", "show", "decode/b9/q1/kv1-64/h8x2/d128/contiguous/bf16", cache_flag()});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_NE(finished.err.find("tune it with attune tune --problem 'decode/b9"), std::string::npos)
      << finished.err;
}

TEST_F(CacheProgram, ExportAndImportCarryTheWinnersOver) {
  fill();
  const std::string file = (folder_ / "exported.db").string();
  const Finished exported = run({"cache", "export", file, cache_flag()});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_EQ(exported.out, "exported 2 winners and 2 binaries to " + file + "\n");
  EXPECT_EQ(run({"cache", "export", file, cache_flag()}).exit_code, 1);  // never overwrites

  const std::string other = "--cache=" + (folder_ / "other.db").string();
  const auto imported = run({"cache", "import", file, "--json", other}).json();
  EXPECT_EQ(imported["winners_added"], 2);
  EXPECT_EQ(run({"cache", "import", file, "--json", other}).json()["winners_added"], 0);
  EXPECT_EQ(run({"cache", "stats", "--json", other}).json()["winners"], 2);
  EXPECT_EQ(run({"cache", "list", "--json", other}).json()["winners"],
            run({"cache", "list", "--json", cache_flag()}).json()["winners"]);
}

TEST_F(CacheProgram, ExportOfACacheThatIsNotThereFails) {
  const auto file = folder_ / "exported.db";
  EXPECT_EQ(run({"cache", "export", file.string(), cache_flag()}).exit_code, 1);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(CacheProgram, ImportRefusesAFileThatIsNoCache) {
  std::ofstream(folder_ / "text.db") << "hello";
  EXPECT_EQ(run({"cache", "import", (folder_ / "text.db").string(), cache_flag()}).exit_code, 1);
  EXPECT_EQ(run({"cache", "import", (folder_ / "none.db").string(), cache_flag()}).exit_code, 1);
}

TEST_F(CacheProgram, ExplainServesTheResultsOfAStoredGpu) {
  fill();
  const auto json = run({"explain", kTuned, "--gpu", "H200", "--json", cache_flag()}).json();
  EXPECT_EQ(json["match"], "exact");
  EXPECT_EQ(json["gpu"]["name"], "NVIDIA H200");
  const Finished unknown = run({"explain", kTuned, "--gpu", "H999", cache_flag()});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.err.find("known=NVIDIA H200|sm_90a"), std::string::npos) << unknown.err;
}

}  // namespace
}  // namespace attune
