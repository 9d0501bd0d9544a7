// The main job on a GPU: tune, tune again, bench and explain what was tuned.
#include "tests/cli/program.h"
#include "tests/support/require_gpu.h"

namespace attune {
namespace {

constexpr const char* kSmall = "decode/b1/q1/kv1-1024/h8x2/d64/contiguous/bf16";

class TuneProgram : public ProgramTest {
 protected:
  TuneProgram() { hide_gpus_ = false; }
  void SetUp() override {
    const DriverStatus driver = query_driver();
    if (driver.problem.empty()) return;
    if (is_required("ATTUNE_REQUIRE_GPU")) FAIL() << driver.problem;
    GTEST_SKIP() << driver.problem;
  }
};

TEST_F(TuneProgram, StoresAWinnerOnceAndServesIt) {
  const Finished cold = run({"tune", kSmall, "--json", cache_flag()});
  ASSERT_EQ(cold.exit_code, 0) << cold.err;
  const auto tuned = cold.json();
  EXPECT_EQ(tuned["state"], "tuned");
  EXPECT_EQ(tuned["tuned"], 1);
  EXPECT_GT(tuned["timed"], 0);
  ASSERT_EQ(tuned["winners"].size(), 1U);
  EXPECT_LE(tuned["winners"][0]["admission"]["relative_l2"], 2.5e-3);
  const std::string winner = tuned["winners"][0]["candidate"];

  const auto start = std::chrono::steady_clock::now();
  const Finished warm = run({"tune", kSmall, cache_flag()});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(warm.exit_code, 0) << warm.err;
  EXPECT_NE(warm.out.find("all 1 problem already tuned: nothing was compiled or timed"),
            std::string::npos)
      << warm.out;

  const auto explained = run({"explain", kSmall, "--json", cache_flag()}).json();
  EXPECT_EQ(explained["match"], "exact");
  EXPECT_EQ(explained["candidate"], winner);

  const Finished bench = run({"bench", kSmall, "--kv", "1024", "--json", cache_flag()});
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  const auto row = bench.json()["problems"][0];
  EXPECT_EQ(row["served"], winner);
  EXPECT_EQ(row["match"], "exact");
  EXPECT_GT(row["points"][0]["served"]["time_us"], 0);
  EXPECT_LE(row["points"][0]["percent_of_floor"], 100);
}

TEST_F(TuneProgram, BenchTimesABatchOfSeveralLengths) {
  const char* batch = "decode/b2/q1/kv1-65536/h8x2/d64/contiguous/bf16";
  const auto point_of = [&](const char* flag, const char* lengths) {
    const Finished finished = run({"bench", batch, flag, lengths, "--json", cache_flag()});
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    return finished.json()["problems"][0]["points"][0];
  };
  const auto mixed = point_of("--lengths", "65536,100");
  const auto alike = point_of("--kv", "65536");
  EXPECT_EQ(mixed["kv_len"], "100..65536");
  EXPECT_LE(mixed["percent_of_floor"], 100);
  EXPECT_LT(mixed["floor_us"], 0.6 * alike["floor_us"].get<double>());
  EXPECT_LT(mixed["served"]["time_us"], 1.1 * alike["served"]["time_us"].get<double>());
}

TEST_F(TuneProgram, DoctorIsContent) {
  const Finished finished = run({"doctor", cache_flag()});
  EXPECT_EQ(finished.exit_code, 0) << finished.out;
  EXPECT_TRUE(finished.out.ends_with("all is well\n")) << finished.out;
}

}  // namespace
}  // namespace attune
