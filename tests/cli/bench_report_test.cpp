#include "cli/bench_report.h"

#include <gtest/gtest.h>

#include "tests/cli/made_up_results.h"

namespace attune {
namespace {

const std::vector<int> kAlone = {4096};

BenchOutcome made_up_bench() {
  BenchOutcome outcome;
  outcome.gpu = made_up_gpu();
  outcome.ceilings = {.read_bytes_per_s = 4.5e12, .tensor_flops_per_s = 9e14};
  BenchRow row;
  row.problem = Problem::parse(kTuned);
  row.match = "exact";
  row.candidate = "splitkv/m16n64s2w8/x33";
  row.default_candidate = "splitkv/m16n32s2w8/x66";
  row.points = {{{4096},
                 {.median_us = 10, .spread_us = 0.05, .num_samples = 9},
                 {.median_us = 15, .spread_us = 0.5, .num_samples = 9}}};
  outcome.rows = {row};
  return outcome;
}

TEST(Floor, IsWhatTakesLongerBytesOrFlops) {
  const Problem problem = Problem::parse(kTuned);
  const double bytes = problem_bytes(problem, 4096);
  const double flops = problem_flops(problem, 4096);
  EXPECT_NEAR(floor_us(problem, kAlone, {1e12, 1e18}), bytes * 1e-6, 1e-9);
  EXPECT_NEAR(floor_us(problem, kAlone, {1e18, 1e12}), flops * 1e-6, 1e-9);
}

TEST(LengthsText, IsANumberOrARange) {
  EXPECT_EQ(lengths_text(std::vector{7}), "7");
  EXPECT_EQ(lengths_text(std::vector{7, 7}), "7");
  EXPECT_EQ(lengths_text(std::vector{1024, 512, 65536}), "512..65536");
}

TEST(BenchReport, GivesEveryTimeItsSpreadAndTheFactorOverTheDefault) {
  const std::string text = bench_text(made_up_bench());
  EXPECT_TRUE(text.starts_with("NVIDIA H200 (sm_90a), driver 13.0: reads 4.50 TB/s"));
  EXPECT_NE(text.find("served splitkv/m16n64s2w8/x33 (exact), default splitkv/m16n32s2w8/x66"),
            std::string::npos);
  EXPECT_NE(text.find("10.00  0.05"), std::string::npos) << text;
  EXPECT_NE(text.find("15.00  0.50         1.50x"), std::string::npos) << text;
}

TEST(BenchReport, SaysThatTheHostsTimesAreTheHosts) {
  BenchOutcome outcome = made_up_bench();
  outcome.gpu = architecture_limits("host+checks");
  outcome.ceilings = {.read_bytes_per_s = 6.76e9, .tensor_flops_per_s = 3.9e9};
  const std::string text = bench_text(outcome);
  EXPECT_NE(
      text.find("(host+checks), 2 cores: reads 6.76 GB/s, emulated tensor cores 3.90 GFLOP/s"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("they say nothing about a GPU"), std::string::npos);
}

TEST(BenchReport, WritesCsvWithAsManyFieldsAsItsHeader) {
  BenchOutcome outcome = made_up_bench();
  outcome.gpu.name = "GPU, \"big\"";
  const std::string csv = bench_csv(outcome, "2025-01-02T03:04:05Z");
  EXPECT_NE(csv.find("2025-01-02T03:04:05Z,\"GPU, \"\"big\"\"\",13.0,4.500,900.0,"),
            std::string::npos)
      << csv;
  EXPECT_NE(csv.find(",4096,splitkv/m16n64s2w8/x33,exact,10.000,0.050,9,"), std::string::npos);
}

TEST(BenchReport, ShowsABatchOfSeveralLengthsAsOneRow) {
  BenchOutcome outcome = made_up_bench();
  BenchRow& row = outcome.rows[0];
  row.problem = Problem::parse("decode/b3/q1/kv1-4096/h8x2/d128/contiguous/bf16");
  row.points[0].kv_lens = {512, 4096, 100};
  const std::string text = bench_text(outcome);
  EXPECT_NE(text.find("100..4096    10.00"), std::string::npos) << text;
  const Json point = bench_json(outcome)["problems"][0]["points"][0];
  EXPECT_EQ(point["kv_len"], "100..4096");
  EXPECT_EQ(point["lengths"], (std::vector{512, 4096, 100}));
  EXPECT_EQ(point["bytes"], problem_bytes(row.problem, row.points[0].kv_lens));
  const std::string csv = bench_csv(outcome, "t");
  EXPECT_NE(csv.find(",100..4096,splitkv/"), std::string::npos) << csv;
  EXPECT_TRUE(csv.ends_with(",15.000,0.500,512 4096 100\n")) << csv;
}

TEST(BenchReport, GivesABatchOfOneLengthItsNumber) {
  BenchOutcome outcome = made_up_bench();
  outcome.rows[0].problem.batch = 2;
  outcome.rows[0].points[0].kv_lens = {4096, 4096};
  const Json point = bench_json(outcome)["problems"][0]["points"][0];
  EXPECT_EQ(point["kv_len"], 4096);
  EXPECT_FALSE(point.contains("lengths"));
  EXPECT_TRUE(bench_csv(outcome, "t").ends_with(",15.000,0.500,\n"));
}

TEST(BenchReport, ListsWhatTheRegisterRuleDrops) {
  BenchOutcome outcome = made_up_bench();
  RuleAudit dropped;
  dropped.candidate = Candidate::parse("splitkv/m64n64s2w4/x33");
  dropped.measurement = made_up_point(4096, 30);
  dropped.resources.registers = 255;
  dropped.resources.spill_store_bytes = 100;
  dropped.resources.spill_load_bytes = 28;
  RuleAudit failed = dropped;
  failed.failure = "smem_bytes=1 limit=0\nmore";
  outcome.rows[0].audit = {dropped, failed};
  outcome.rows[0].audit_kv_len = 4096;
  const std::string text = bench_text(outcome);
  EXPECT_NE(text.find("dropped    30.00  0.11   255          128\n"), std::string::npos) << text;
  EXPECT_NE(text.find("smem_bytes=1 limit=0\n"), std::string::npos);
  EXPECT_NE(audit_csv(outcome, "t").find(",dropped,30.000,0.110,255,128,\n"), std::string::npos);
  EXPECT_EQ(bench_json(outcome)["problems"][0]["register_rule"]["candidates"].size(), 2U);
}

}  // namespace
}  // namespace attune
