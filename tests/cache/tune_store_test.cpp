#include "cache/tune_store.h"
#include "cache/schema.h"

#include <limits>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/cache/fixtures.h"

namespace attune {
namespace {

using namespace std::string_literals;
using testing::cache_error_of;
using testing::sample_binary;
using testing::sample_candidate;
using testing::sample_gpu;
using testing::sample_measurement;
using testing::sample_problem;
using testing::sample_toolchain;
using testing::sample_winner;
using testing::Warnings;

constexpr const char* kVariant = "splitkv/d256/ring/bf16/m16n64s2w8";

void expect_equal(const Binary& a, const Binary& b) {
  EXPECT_EQ(a.key, b.key);
  EXPECT_EQ(a.content, b.content);
  EXPECT_EQ(a.arch, b.arch);
  EXPECT_EQ(a.compiler_version, b.compiler_version);
  EXPECT_EQ(a.options, b.options);
  EXPECT_EQ(a.cubin, b.cubin);
  EXPECT_EQ(a.kernels, b.kernels);
  EXPECT_EQ(a.notes, b.notes);
  EXPECT_EQ(a.log, b.log);
  EXPECT_EQ(a.compile_ms, b.compile_ms);
}

void expect_equal(const Measurement& a, const Measurement& b) {
  EXPECT_EQ(a.kv_len, b.kv_len);
  EXPECT_EQ(a.median_us, b.median_us);
  EXPECT_EQ(a.spread_us, b.spread_us);
  EXPECT_EQ(a.num_samples, b.num_samples);
  EXPECT_EQ(a.method, b.method);
  EXPECT_EQ(a.driver_version, b.driver_version);
  EXPECT_EQ(a.created_at, b.created_at);
}

TEST(TuneStore, GivesBackABinaryAsItWasPut) {
  const auto store = TuneStore::open_in_memory();
  Binary plain = sample_binary("two");
  plain.kernels.clear();
  plain.notes.clear();
  plain.log = "bytes \xff and a zero \0 inside"s;
  store->put_binary(sample_binary(), kVariant);
  store->put_binary(plain, kVariant);
  expect_equal(store->find_binary(sample_binary().key).value(), sample_binary());
  expect_equal(store->find_binary(plain.key).value(), plain);
  EXPECT_FALSE(store->find_binary(digest_of("never put")));
}

TEST(TuneStore, TakesTheSameBinaryTwice) {
  const auto store = TuneStore::open_in_memory();
  store->put_binary(sample_binary(), kVariant);
  store->put_binary(sample_binary(), kVariant);
  EXPECT_EQ(store->stats().num_binaries, 1);
  expect_equal(store->find_binary(sample_binary().key).value(), sample_binary());
}

TEST(TuneStore, KeepsTheAdmittedBinaryWhenACompileGivesOtherBytes) {
  const auto store = TuneStore::open_in_memory();
  store->put_winner(sample_gpu(), sample_winner());
  Binary other = sample_binary("other bytes");
  other.key = sample_binary().key;
  store->put_binary(other, kVariant);
  expect_equal(store->find_binary(other.key).value(), sample_binary());

  Winner winner = sample_winner();
  winner.binary = other;
  store->put_winner(sample_gpu(), winner);
  expect_equal(store->find_binary(other.key).value(), other);
}

TEST(TuneStore, RefusesABinaryThatDoesNotMatchItsDigest) {
  const auto store = TuneStore::open_in_memory();
  Binary wrong = sample_binary();
  wrong.content = digest_of("another cubin");
  EXPECT_THROW(store->put_binary(wrong, kVariant), InvalidArgument);
  Winner empty = sample_winner();
  empty.binary.cubin.clear();
  EXPECT_THROW(store->put_winner(sample_gpu(), empty), InvalidArgument);
  EXPECT_EQ(store->stats().num_binaries, 0);
}

TEST(TuneStore, RemembersACompileFailureUntilItCompiles) {
  const auto store = TuneStore::open_in_memory();
  const Digest key = sample_binary().key;
  EXPECT_FALSE(store->find_compile_failure(key));
  store->put_compile_failure(key, kVariant, "sm_90a", "13.0", "error: first");
  store->put_compile_failure(key, kVariant, "sm_90a", "13.0", "error: second");
  EXPECT_EQ(store->find_compile_failure(key), "error: second");
  EXPECT_FALSE(store->find_binary(key));
  EXPECT_TRUE(store->binaries().at(0).failed);

  store->put_binary(sample_binary(), kVariant);
  EXPECT_FALSE(store->find_compile_failure(key));
  store->put_compile_failure(key, kVariant, "sm_90a", "13.0", "killed");
  EXPECT_FALSE(store->find_compile_failure(key));
  EXPECT_TRUE(store->find_binary(key));
}

TEST(TuneStore, ListsBinariesWithTheirSizes) {
  const auto store = TuneStore::open_in_memory();
  store->put_binary(sample_binary(), kVariant);
  const BinaryRow row = store->binaries().at(0);
  EXPECT_EQ(row.key, sample_binary().key);
  EXPECT_EQ(row.content, sample_binary().content);
  EXPECT_EQ(row.variant, kVariant);
  EXPECT_EQ(row.arch, "sm_90a");
  EXPECT_EQ(row.compiler_version, "13.0");
  EXPECT_EQ(row.cubin_bytes, sample_binary().cubin.size());
  EXPECT_GT(row.stored_bytes, 0u);
  EXPECT_LT(row.stored_bytes, row.cubin_bytes);
  EXPECT_EQ(row.compile_ms, 321.5);
  EXPECT_FALSE(row.failed);
}

TEST(TuneStore, GivesBackAWinnerAsItWasPut) {
  const auto store = TuneStore::open_in_memory();
  const Winner put = sample_winner();
  store->put_winner(sample_gpu(), put);
  const auto hit = store->find_winner(sample_gpu(), put.problem, put.toolchain, 1);
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->match, Match::kExact);
  EXPECT_EQ(hit->freshness, Freshness::kFresh);
  const Winner& got = hit->winner;
  EXPECT_EQ(got.problem, put.problem);
  EXPECT_EQ(got.candidate, put.candidate);
  EXPECT_EQ(got.toolchain, put.toolchain);
  expect_equal(got.binary, put.binary);
  EXPECT_EQ(got.admission.reference, put.admission.reference);
  EXPECT_EQ(got.admission.num_cases, put.admission.num_cases);
  EXPECT_EQ(got.admission.relative_l2, put.admission.relative_l2);
  EXPECT_EQ(got.admission.worst_case_relative_l2, put.admission.worst_case_relative_l2);
  EXPECT_EQ(got.admission.max_abs_error, put.admission.max_abs_error);
  EXPECT_EQ(got.admission.created_at, put.admission.created_at);
  ASSERT_EQ(got.measurements.size(), put.measurements.size());
  for (std::size_t i = 0; i < put.measurements.size(); ++i) {
    expect_equal(got.measurements[i], put.measurements[i]);
  }
  EXPECT_EQ(got.worst_regret, put.worst_regret);
  EXPECT_EQ(got.runner_up, put.runner_up);
  EXPECT_EQ(got.margin_runner_up, put.margin_runner_up);
  EXPECT_EQ(got.default_candidate, put.default_candidate);
  EXPECT_EQ(got.margin_default, put.margin_default);
  EXPECT_EQ(got.method, put.method);
  EXPECT_EQ(got.driver_version, put.driver_version);
  EXPECT_EQ(got.created_at, put.created_at);
}

TEST(TuneStore, FillsInTheTimeAndTheDriverThatAWinnerLeavesOut) {
  const auto store = TuneStore::open_in_memory();
  Winner winner = sample_winner();
  winner.created_at.clear();
  winner.driver_version.clear();
  winner.admission.created_at.clear();
  store->put_winner(sample_gpu(), winner);
  const Winner got = store->winners().at(0).second;
  EXPECT_EQ(got.driver_version, sample_gpu().driver_version);
  EXPECT_EQ(got.created_at.size(), std::string("2026-01-02T03:04:05Z").size());
  EXPECT_EQ(got.created_at.back(), 'Z');
  EXPECT_EQ(got.admission.created_at, got.created_at);
}

TEST(TuneStore, ReplacesAWinnerAndKeepsOneRow) {
  const auto store = TuneStore::open_in_memory();
  store->put_winner(sample_gpu(), sample_winner());
  Winner better = sample_winner();
  better.candidate.split_cap = 7;
  better.binary = sample_binary("better");
  better.worst_regret = 0;
  store->put_winner(sample_gpu(), better);
  ASSERT_EQ(store->winners().size(), 1u);
  const auto hit = store->find_winner(sample_gpu(), better.problem, better.toolchain);
  EXPECT_EQ(hit->winner.candidate, better.candidate);
  EXPECT_EQ(hit->winner.worst_regret, 0);
  expect_equal(hit->winner.binary, better.binary);
}

TEST(TuneStore, MissesWhenThereIsNothing) {
  const auto store = TuneStore::open_in_memory();
  EXPECT_FALSE(store->find_winner(sample_gpu(), sample_problem(), sample_toolchain()));
  EXPECT_TRUE(store->winners().empty());
  EXPECT_TRUE(store->measurements(sample_gpu(), sample_problem(), sample_toolchain()).empty());
  EXPECT_TRUE(store->rejections(sample_gpu(), sample_problem(), sample_toolchain()).empty());
  EXPECT_TRUE(store->binaries().empty());
}

TEST(TuneStore, ReturnsNearestShapeWhenExactIsMissing) {
  const auto store = TuneStore::open_in_memory();
  Problem tuned = sample_problem();
  tuned.kv = {1, 4096};
  store->put_winner(sample_gpu(), sample_winner(tuned));
  tuned.kv = {1, 1024};
  store->put_winner(sample_gpu(), sample_winner(tuned));
  Problem asked = sample_problem();
  asked.kv = {100, 1000};
  asked.seqlen_q = 5;
  const auto hit = store->find_winner(sample_gpu(), asked, sample_toolchain());
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->match, Match::kNearestShape);
  EXPECT_EQ(hit->winner.problem, tuned);
}

TEST(TuneStore, CallsAWinnerOfAnotherDriverStale) {
  const auto store = TuneStore::open_in_memory();
  store->put_winner(sample_gpu(), sample_winner());
  DeviceInfo gpu = sample_gpu();
  gpu.driver_version = "13.1";
  EXPECT_EQ(store->find_winner(gpu, sample_problem(), sample_toolchain())->freshness,
            Freshness::kStaleDriver);
  gpu.driver_version.clear();
  EXPECT_EQ(store->find_winner(gpu, sample_problem(), sample_toolchain())->freshness,
            Freshness::kFresh);
}

TEST(TuneStore, CallsAWinnerOfAnotherTimingMethodOlder) {
  const auto store = TuneStore::open_in_memory();
  store->put_winner(sample_gpu(), sample_winner());
  const auto freshness = [&](const DeviceInfo& gpu, int method) {
    return store->find_winner(gpu, sample_problem(), sample_toolchain(), method)->freshness;
  };
  EXPECT_EQ(freshness(sample_gpu(), 0), Freshness::kFresh);
  EXPECT_EQ(freshness(sample_gpu(), 1), Freshness::kFresh);
  EXPECT_EQ(freshness(sample_gpu(), 2), Freshness::kOlderMethod);
  DeviceInfo gpu = sample_gpu();
  gpu.driver_version = "13.1";
  EXPECT_EQ(freshness(gpu, 2), Freshness::kOlderMethod);
  EXPECT_EQ(freshness(gpu, 1), Freshness::kStaleDriver);
}

TEST(TuneStore, ListsWinnersOfOneGpuOrAllWithoutCubins) {
  const auto store = TuneStore::open_in_memory();
  DeviceInfo other = sample_gpu();
  other.name = "Another GPU";
  store->put_winner(sample_gpu(), sample_winner());
  store->put_winner(other, sample_winner());
  EXPECT_EQ(store->winners().size(), 2u);
  const auto mine = store->winners(other.identity());
  ASSERT_EQ(mine.size(), 1u);
  EXPECT_EQ(mine[0].first, other.identity());
  EXPECT_TRUE(mine[0].second.binary.cubin.empty());
  EXPECT_EQ(mine[0].second.binary.kernels, sample_binary().kernels);
  EXPECT_EQ(mine[0].second.measurements.size(), 2u);
}

TEST(TuneStore, StoresNothingOfAWinnerThatFailsHalfWay) {
  const auto store = TuneStore::open_in_memory();
  store->put_winner(sample_gpu(), sample_winner());
  const CacheStats before = store->stats();
  DeviceInfo gpu = sample_gpu();
  gpu.name = "Another GPU";
  Winner bad = sample_winner();
  bad.candidate.split_cap = 5;
  bad.binary = sample_binary("bad");
  bad.measurements[1].median_us = -1;  // breaks the CHECK after binary and admission are written
  const std::string message = cache_error_of([&] { store->put_winner(gpu, bad); });
  EXPECT_NE(message.find("CHECK constraint failed: median_us"), std::string::npos) << message;
  const CacheStats after = store->stats();
  EXPECT_EQ(after.num_gpus, before.num_gpus);
  EXPECT_EQ(after.num_candidates, before.num_candidates);
  EXPECT_EQ(after.num_binaries, before.num_binaries);
  EXPECT_EQ(after.num_admissions, before.num_admissions);
  EXPECT_EQ(after.num_measurements, before.num_measurements);
  EXPECT_EQ(after.num_winners, before.num_winners);
  EXPECT_FALSE(store->find_binary(bad.binary.key));
}

TEST(TuneStore, RefusesAProblemThatIsNotDefinedAndAPointOutsideIt) {
  const auto store = TuneStore::open_in_memory();
  Winner winner = sample_winner();
  winner.problem.head_dim = 96;
  EXPECT_THROW(store->put_winner(sample_gpu(), winner), InvalidArgument);
  winner = sample_winner();
  winner.measurements[0].kv_len = winner.problem.kv.max + 1;
  EXPECT_THROW(store->put_winner(sample_gpu(), winner), InvalidArgument);
  EXPECT_TRUE(store->winners().empty());
}

TEST(TuneStore, RefusesATimeThatIsNoNumber) {
  const auto store = TuneStore::open_in_memory();
  Winner winner = sample_winner();
  winner.measurements[0].median_us = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(store->put_winner(sample_gpu(), winner), CacheError);
  EXPECT_TRUE(store->winners().empty());
}

TEST(TuneStore, GivesBackMeasurementsByCandidateAndLength) {
  const auto store = TuneStore::open_in_memory();
  Candidate other = sample_candidate();
  other.split_cap = 2;
  const std::vector<CandidateMeasurements> put = {
      {sample_candidate(), {sample_measurement(4096, 9), sample_measurement(1, 3)}},
      {other, {sample_measurement(64, 5)}}};
  store->put_measurements(sample_gpu(), sample_problem(), sample_toolchain(), put);
  const auto got = store->measurements(sample_gpu(), sample_problem(), sample_toolchain());
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].candidate, other);
  EXPECT_EQ(got[1].candidate, sample_candidate());
  ASSERT_EQ(got[1].points.size(), 2u);
  expect_equal(got[1].points[0], put[0].points[1]);
  expect_equal(got[1].points[1], put[0].points[0]);
}

TEST(TuneStore, ReplacesMeasurementsInsideTheRangeOnly) {
  const auto store = TuneStore::open_in_memory();
  const auto put = [&](const KvRange& kv, std::vector<Measurement> points) {
    Problem problem = sample_problem();
    problem.kv = kv;
    const std::vector<CandidateMeasurements> all = {{sample_candidate(), std::move(points)}};
    store->put_measurements(sample_gpu(), problem, sample_toolchain(), all);
  };
  put({1, 4096},
      {sample_measurement(1, 1), sample_measurement(64, 2), sample_measurement(4096, 3)});
  put({32, 128}, {sample_measurement(128, 4)});
  const auto got = store->measurements(sample_gpu(), sample_problem(), sample_toolchain());
  ASSERT_EQ(got.size(), 1u);
  std::vector<int> lens;
  for (const Measurement& point : got[0].points) lens.push_back(point.kv_len);
  EXPECT_EQ(lens, (std::vector<int>{1, 128, 4096}));
}

TEST(TuneStore, ReplacesRejectionsOfTheSameProblemAndToolchain) {
  const auto store = TuneStore::open_in_memory();
  Candidate other = sample_candidate();
  other.config.num_stages = 4;
  const std::vector<RejectionRecord> first = {
      {sample_candidate(), Stage::kCompile, {RejectReason::kSpill, "spill_store_bytes=8"}},
      {other, Stage::kPrune, {RejectReason::kSmem, "smem_bytes=245760 limit=232448"}}};
  const std::vector<RejectionRecord> second = {
      {other, Stage::kVerify, {RejectReason::kWrongResult, "relative_l2=0.5"}}};
  Toolchain newer = sample_toolchain();
  newer.compiler_version = "13.1";
  store->put_rejections(sample_gpu(), sample_problem(), sample_toolchain(), first);
  store->put_rejections(sample_gpu(), sample_problem(), newer, first);
  store->put_rejections(sample_gpu(), sample_problem(), sample_toolchain(), second);
  const auto got = store->rejections(sample_gpu(), sample_problem(), sample_toolchain());
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].candidate, other);
  EXPECT_EQ(got[0].stage, Stage::kVerify);
  EXPECT_EQ(got[0].rejection.reason, RejectReason::kWrongResult);
  EXPECT_EQ(got[0].rejection.detail, "relative_l2=0.5");
  EXPECT_EQ(store->rejections(sample_gpu(), sample_problem(), newer).size(), 2u);
}

TEST(TuneStore, CountsItsRows) {
  const auto store = TuneStore::open_in_memory();
  store->put_winner(sample_gpu(), sample_winner());
  const CacheStats stats = store->stats();
  EXPECT_EQ(stats.path, ":memory:");
  EXPECT_EQ(stats.schema_version, kSchemaVersion);
  EXPECT_GT(stats.file_bytes, 0u);
  EXPECT_EQ(stats.num_gpus, 1);
  EXPECT_EQ(stats.num_problems, 3);  // the problem and its two points
  EXPECT_EQ(stats.num_candidates, 1);
  EXPECT_EQ(stats.num_binaries, 1);
  EXPECT_EQ(stats.num_admissions, 1);
  EXPECT_EQ(stats.num_measurements, 2);
  EXPECT_EQ(stats.num_winners, 1);
  EXPECT_EQ(stats.num_rejections, 0);
}

TEST(TuneStore, AWarningMayCallTheStoreAndMayThrow) {
  testing::TempDir dir;
  TuneStore* inner = nullptr;
  int num_calls = 0;
  const auto store = TuneStore::open(dir / "tune.db", [&](const std::string&) {
    ++num_calls;
    if (inner != nullptr) inner->stats();
    throw std::runtime_error("the log is full");
  });
  inner = store.get();
  store->put_binary(sample_binary(), kVariant);
  testing::tamper(dir / "tune.db", "UPDATE binaries SET cubin = x'00'");
  EXPECT_FALSE(store->find_binary(sample_binary().key));
  EXPECT_EQ(num_calls, 1);
}

}  // namespace
}  // namespace attune
