// The main job without a GPU: tune, tune again, explain, bench and serve on the host device.
#include "tests/cli/host_program.h"
#include "runtime/attune.h"

namespace attune {
namespace {

// One tile holds all keys, so that every config has one candidate.
constexpr const char* kTiny = "decode/b1/q1/kv1-16/h1x1/d64/contiguous/bf16";

class HostProgram : public HostProgramTest {};

TEST_F(HostProgram, StoresAWinnerOnceAndServesIt) {
  const Finished cold = run({"tune", kTiny, "--device", "host", "--json", cache_flag()});
  ASSERT_EQ(cold.exit_code, 0) << cold.err;
  const auto tuned = cold.json();
  EXPECT_EQ(tuned["state"], "tuned");
  EXPECT_GT(tuned["timed"], 10);
  ASSERT_EQ(tuned["winners"].size(), 1U);
  EXPECT_LE(tuned["winners"][0]["admission"]["relative_l2"], 2.5e-3);
  const std::string winner = tuned["winners"][0]["candidate"];

  more_environment_ = {"ATTUNE_DEVICE=host"};  // the same as the flag
  const Finished warm = run({"tune", kTiny, cache_flag()});
  EXPECT_EQ(warm.exit_code, 0) << warm.err;
  EXPECT_NE(warm.out.find("all 1 problem already tuned: nothing was compiled or timed"),
            std::string::npos)
      << warm.out;

  const auto explained = run({"explain", kTiny, "--json", cache_flag()}).json();
  EXPECT_EQ(explained["match"], "exact");
  EXPECT_EQ(explained["candidate"], winner);
  EXPECT_EQ(explained["gpu"]["arch"], "host");
  const Finished list = run({"cache", "list", cache_flag()});
  EXPECT_NE(list.out.find("host CPU"), std::string::npos) << list.out;

  const Finished bench = run({"bench", kTiny, "--kv", "16", cache_flag()});
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  EXPECT_NE(bench.out.find("they say nothing about a GPU"), std::string::npos) << bench.out;
  EXPECT_NE(bench.out.find("served " + winner + " (exact)"), std::string::npos) << bench.out;

  Options options;
  options.device = "host";
  options.cache_path = cache().string();
  options.cxx_path = test_host_search().cxx;
  options.on_miss = OnMiss::kError;
  Engine engine(options);
  EXPECT_EQ(engine.prepare(kTiny).candidate_text(), winner);
}

// All that takes problems takes those of linear layers.
TEST_F(HostProgram, TunesALinearLayerAndShowsIt) {
  // Packed, it has few candidates.
  const std::string linear = "linear/m8/n40/k264/geglu/int4";
  const Finished compiled =
      run({"tune", "--problem", linear, "--compile-only", "--arch", "host", cache_flag()});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  more_environment_ = {"ATTUNE_DEVICE=host"};
  EXPECT_EQ(run({"tune", linear, "--check", cache_flag()}).exit_code, 1);
  const Finished cold = run({"tune", linear, "--json", cache_flag()});
  ASSERT_EQ(cold.exit_code, 0) << cold.err;
  const auto tuned = cold.json();
  EXPECT_EQ(tuned["compiled"], 0);
  EXPECT_GE(tuned["timed"], 2);
  ASSERT_EQ(tuned["winners"].size(), 1U);
  EXPECT_EQ(tuned["winners"][0]["problem"], linear);
  EXPECT_EQ(tuned["winners"][0]["admission"]["reference"], "linear-cpu-double-1");
  EXPECT_LE(tuned["winners"][0]["admission"]["relative_l2"], 2.5e-3);
  const std::string winner = tuned["winners"][0]["candidate"];
  EXPECT_EQ(run({"tune", linear, "--check", cache_flag()}).exit_code, 0);

  const auto explained = run({"explain", linear, "--json", cache_flag()}).json();
  EXPECT_EQ(explained["match"], "exact");
  EXPECT_EQ(explained["candidate"], winner);
  EXPECT_FALSE(explained["causes"].empty());
  const auto other = run({"explain", "linear/m16/n40/k264/geglu/int4", cache_flag()}).out;
  EXPECT_NE(other.find("no exact match: " + linear + ": tokens is 8, not 16"), std::string::npos)
      << other;
  const Finished list = run({"cache", "list", cache_flag()});
  EXPECT_NE(list.out.find(linear), std::string::npos) << list.out;
  const Finished shown = run({"cache", "show", linear, cache_flag()});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  const auto page = folder_ / "report.html";
  const Finished report = run({"report", "-o", page.string(), cache_flag()});
  EXPECT_EQ(report.exit_code, 0) << report.err;
  EXPECT_NE(read_file(page).find("linear, 8 tokens"), std::string::npos);

  const std::string exported = (folder_ / "exported.db").string();
  const std::string copy = "--cache=" + (folder_ / "copy.db").string();
  EXPECT_EQ(run({"cache", "export", exported, cache_flag()}).exit_code, 0);
  EXPECT_EQ(run({"cache", "import", exported, copy}).exit_code, 0);

  const Finished bench = run({"bench", linear, cache_flag()});
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  EXPECT_NE(bench.out.find("served " + winner + " (exact)"), std::string::npos) << bench.out;
  const Finished check = run({"check", linear, "--candidate", winner, "--json"});
  ASSERT_EQ(check.exit_code, 0) << check.err << check.out;
  EXPECT_EQ(check.json()["failed"], 0);
  EXPECT_EQ(check.json()["checks"][0]["cases"], 3);
}

TEST_F(HostProgram, MeasuresWithoutACompilerWhatWasCompiledBefore) {
  const std::string one_family = "ATTUNE_DISABLE_FAMILIES=swapab,oneround,wgmma,tiled";
  more_environment_ = {one_family};
  const Finished compiled = run({"tune", kTiny, "--compile-only", "--arch", "host", cache_flag()});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  more_environment_ = {one_family, "ATTUNE_CXX=/nowhere", "ATTUNE_WORKER=/nowhere"};
  const Finished measured =
      run({"tune", kTiny, "--measure-only", "--device", "host", "--json", cache_flag()});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_EQ(measured.json()["winners"].size(), 1U);
  EXPECT_EQ(measured.json()["compiled"], 0);
  EXPECT_TRUE(measured.json()["missing"].empty());
  EXPECT_EQ(run({"tune", kTiny, "--check", "--device", "host", cache_flag()}).exit_code, 0);

  const std::string empty = "--cache=" + (folder_ / "empty.db").string();
  const Finished nothing = run({"tune", kTiny, "--measure-only", "--device", "host", empty});
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_NE(nothing.err.find("attune tune --compile-only --arch host"), std::string::npos)
      << nothing.err;
}

TEST_F(HostProgram, BenchTimesABatchOfSeveralLengths) {
  const auto csv = folder_ / "batch.csv";
  const Finished finished =
      run({"bench", "decode/b2/q1/kv1-64/h1x1/d64/contiguous/bf16", "--lengths", "40,3", "--device",
           "host", "--json", "--csv", csv.string(), cache_flag()});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  const auto points = finished.json()["problems"][0]["points"];
  ASSERT_EQ(points.size(), 1U);
  EXPECT_EQ(points[0]["kv_len"], "3..40");
  EXPECT_EQ(points[0]["lengths"], (std::vector{40, 3}));
  EXPECT_EQ(points[0]["bytes"], 2 * 64 * 2 * (40 + 3) + 2 * 2 * 64 * 2);
  EXPECT_GT(points[0]["served"]["time_us"], 0);
  EXPECT_NE(read_file(csv).find(",3..40,"), std::string::npos) << read_file(csv);
}

TEST_F(HostProgram, CheckRunsACandidateWithEveryCheck) {
  const Finished finished =
      run({"check", kTiny, "--candidate", "splitkv/m16n32s2w2/x1", "--early-copies", "--keep",
           (folder_ / "kept").string(), "--json"});
  ASSERT_EQ(finished.exit_code, 0) << finished.err << finished.out;
  const auto json = finished.json();
  EXPECT_EQ(json["target"], "host+checks");
  EXPECT_EQ(json["failed"], 0);
  ASSERT_EQ(json["checks"].size(), 2U);
  EXPECT_EQ(json["checks"][0]["copies"], "late");
  EXPECT_EQ(json["checks"][1]["copies"], "early");
  EXPECT_GT(json["checks"][1]["cases"], 10);
  EXPECT_FALSE(std::filesystem::is_empty(folder_ / "kept"));
}

TEST_F(HostProgram, DoctorOfTheHostDeviceTriesACompileAndALaunch) {
  const Finished finished = run({"doctor", "--device", "host", "--json", cache_flag()});
  ASSERT_EQ(finished.exit_code, 0) << finished.out;
  const auto host = finished.json()["host"];
  EXPECT_EQ(host["problem"], "");
  EXPECT_GE(host["cores"], 1);
  more_environment_ = {"ATTUNE_CXX=/no/such/compiler"};
  EXPECT_EQ(run({"doctor", "--device", "host", cache_flag()}).exit_code, 1);
}

}  // namespace
}  // namespace attune
