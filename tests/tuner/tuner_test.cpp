#include "tuner/tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "common/error.h"
#include "tests/tuner/fake_attention.h"
#include "tuner/local_measure.h"
#include "tuner/space.h"

namespace attune {
namespace {

const Problem kProblem = Problem::parse("decode/b1/q1/kv1-64/h2x1/d64/contiguous/bf16");

// An H200 with little shared memory, so that few candidates are left.
DeviceInfo tuned_device_info() {
  DeviceInfo info = small_l2_device_info();
  info.max_smem_per_block_bytes = 20 << 10;
  return info;
}

// Made-up times with one best config.
double cost_us(const Variant& variant, const AttentionParams& p) {
  const KernelConfig& config = variant.config;
  return 40.0 * (1 + 0.1 * std::abs(config.num_warps - 4) + 0.002 * std::abs(config.block_n - 32) +
                 0.1 * (config.num_stages - 1) + 0.1 * p.split_cap);
}
const KernelConfig kBest{16, 32, 1, 4};

class TunerTest : public testing::Test {
 protected:
  TunerTest() { serve_attention(device_, cost_us); }
  TuneReport tune(const TuneOptions& options = {}) { return tune({kProblem}, options); }
  TuneReport tune(const std::vector<Problem>& problems, const TuneOptions& options) {
    return Tuner(&measure_, *store_, compiles_).tune(problems, options);
  }
  Toolchain toolchain() const {
    return toolchain_of(*find_family("splitkv"), "sm_90a", compiles_.compiler_version());
  }
  std::optional<WinnerHit> stored(const Problem& problem = kProblem) const {
    return store_->find_winner(device_.info(), problem, toolchain(), kTimingMethod);
  }

  FakeDevice device_{tuned_device_info()};
  LocalMeasure measure_{device_};
  FakeCompiles compiles_;
  std::unique_ptr<TuneStore> store_ = TuneStore::open_in_memory();
};

TEST(GroupProblems, PutsTheRangesOfAProblemTogether) {
  const auto units =
      group_problems({Problem::parse("decode/b1/q1/kv1-64/h2x1/d64/contiguous/bf16"),
                      Problem::parse("decode/b2/q1/kv1-64/h2x1/d64/contiguous/bf16"),
                      Problem::parse("decode/b1/q1/kv65-99/h2x1/d64/contiguous/bf16"),
                      Problem::parse("decode/b1/q1/kv1-64/h2x1/d64/contiguous/bf16")});
  ASSERT_EQ(units.size(), 2u);
  EXPECT_EQ(units[0].ranges, (std::vector<KvRange>{{1, 64}, {65, 99}}));
  EXPECT_EQ(units[0].problem.kv, (KvRange{1, 99}));
  EXPECT_EQ(units[1].problem.batch, 2);
}

TEST_F(TunerTest, StoresTheFastestRightCandidate) {
  const TuneReport report = tune();
  ASSERT_EQ(report.winners.size(), 1u);
  EXPECT_TRUE(report.complete);
  EXPECT_TRUE(report.failures.empty());
  const auto hit = stored();
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->match, Match::kExact);
  EXPECT_EQ(hit->freshness, Freshness::kFresh);
  EXPECT_EQ(hit->winner.candidate, (Candidate{"splitkv", kBest, 1}));
  EXPECT_FALSE(hit->winner.binary.cubin.empty());
  EXPECT_TRUE(report.winners[0].binary.cubin.empty());
  EXPECT_GT(hit->winner.admission.num_cases, 20);
  EXPECT_EQ(hit->winner.measurements.size(), 7u);  // 1 to 64
  EXPECT_NEAR(hit->winner.worst_regret, 0, 1e-9);
  EXPECT_GT(hit->winner.margin_default, 0);
  EXPECT_GT(hit->winner.margin_runner_up, 0);
  EXPECT_EQ(hit->winner.default_candidate, default_candidate(kProblem, device_.info()).text());
}

TEST_F(TunerTest, CountsWhatItDid) {
  const CandidateSpace space = candidate_space(kProblem, device_.info());
  std::set<Variant> variants;
  for (const Candidate& one : space.kept) variants.insert(one.variant(kProblem));
  TuneOptions options;
  options.effort = Effort::kExhaustive;
  const TuneReport report = tune(options);
  EXPECT_EQ(report.num_problems, 1u);
  EXPECT_EQ(report.num_tuned, 1u);
  EXPECT_EQ(report.num_candidates, space.kept.size() + space.pruned.size());
  EXPECT_EQ(report.num_pruned, space.pruned.size());
  EXPECT_EQ(report.num_compiled, variants.size() + 1);  // the measuring kernels too
  EXPECT_EQ(report.num_timed, space.kept.size());
  std::size_t pruned = 0;
  for (const auto& [reason, count] : report.pruned_by_reason) pruned += count;
  EXPECT_EQ(pruned, report.num_pruned);
}

TEST_F(TunerTest, DoesNothingTheSecondTime) {
  tune();
  const int compiled = compiles_.num_compiled;
  const int launches = device_.num_launches();
  const TuneReport again = tune();
  EXPECT_EQ(again.num_cached, 1u);
  EXPECT_EQ(again.num_tuned, 0u);
  EXPECT_EQ(again.winners.size(), 1u);
  EXPECT_EQ(compiles_.num_compiled, compiled);
  EXPECT_EQ(device_.num_launches(), launches);
}

TEST_F(TunerTest, MoreEffortTunesAgainAndLessDoesNot) {
  TuneOptions quick, normal;
  quick.effort = Effort::kQuick;
  const std::size_t num_quick = tune(quick).num_timed;
  EXPECT_EQ(stored()->winner.effort, "quick");
  EXPECT_EQ(tune(quick).num_cached, 1u);
  const TuneReport more = tune(normal);
  EXPECT_EQ(more.num_cached, 0u);
  EXPECT_GT(more.num_timed, num_quick);
  EXPECT_EQ(stored()->winner.effort, "normal");
  EXPECT_EQ(tune(quick).num_cached, 1u);
}

// The launches of the timer by config; verification is not timed.
std::map<Variant, int> timed_launches(FakeDevice& device, const std::function<void()>& work) {
  std::map<Variant, int> launches;
  serve_attention(device, [&](const Variant& variant, const AttentionParams& p) {
    if (!is_verification(p)) ++launches[variant];
    return cost_us(variant, p);
  });
  work();
  return launches;
}

TEST_F(TunerTest, ANewCandidateIsTimedWithTheFinalistsAlone) {
  TuneOptions options;
  options.effort = Effort::kExhaustive;
  tune(options);
  // As if one candidate had not been there: no time of it, and the winner chosen from the others.
  Winner winner = stored()->winner;
  auto measured = store_->measurements(device_.info(), kProblem, toolchain());
  const auto is_other = [&](const CandidateMeasurements& one) {
    const std::string text = one.candidate.text();
    return one.candidate != winner.candidate && text != winner.runner_up &&
           text != winner.default_candidate && one.candidate.config.num_warps != 4;
  };
  const auto last = std::find_if(measured.begin(), measured.end(), is_other);
  ASSERT_NE(last, measured.end());
  const Candidate added = last->candidate;
  measured.erase(last);
  store_->put_measurements(device_.info(), kProblem, toolchain(), measured);
  winner.candidates = "of fewer";
  store_->put_winner(device_.info(), winner);

  TuneReport report;
  const auto launches = timed_launches(device_, [&] { report = tune(options); });
  EXPECT_EQ(report.num_cached, 0u);
  EXPECT_EQ(report.num_tuned, 1u);
  EXPECT_EQ(launches.count(added.variant(kProblem)), 1u) << added.text();
  // Finalists of the exhaustive plan, the default and the new one; the others' times are known.
  EXPECT_LE(launches.size(), plan_of(options.effort).num_finalists + 2);
  EXPECT_LT(launches.size(), report.num_timed);
  EXPECT_EQ(stored()->winner.candidate, (Candidate{"splitkv", kBest, 1}));
  EXPECT_EQ(tune(options).num_cached, 1u);
}

TEST_F(TunerTest, AnOlderWayOfMeasuringIsTimedAgainAndStillServed) {
  tune();
  Winner winner = stored()->winner;
  winner.method = kTimingMethod - 1;
  for (Measurement& point : winner.measurements) --point.method;
  store_->put_winner(device_.info(), winner);
  EXPECT_EQ(stored()->freshness, Freshness::kOlderMethod);
  EXPECT_EQ(stored()->winner.candidate, winner.candidate);
  EXPECT_EQ(tune().num_tuned, 1u);
  EXPECT_EQ(stored()->freshness, Freshness::kFresh);
}

TEST_F(TunerTest, RefreshTimesAgainWithoutCompiling) {
  tune();
  const int compiled = compiles_.num_compiled;
  const int launches = device_.num_launches();
  TuneOptions options;
  options.refresh = true;
  EXPECT_EQ(tune(options).num_tuned, 1u);
  EXPECT_EQ(compiles_.num_compiled, compiled);
  EXPECT_GT(device_.num_launches(), launches);
}

TEST_F(TunerTest, TimesAgainUnderAnotherDriver) {
  tune();
  DeviceInfo info = tuned_device_info();
  info.driver_version = "13.1";
  FakeDevice other(info);
  serve_attention(other, cost_us);
  LocalMeasure measure(other);
  const TuneReport report = Tuner(&measure, *store_, compiles_).tune({kProblem}, {});
  EXPECT_EQ(report.num_cached, 0u);
  EXPECT_EQ(report.num_tuned, 1u);
}

TEST_F(TunerTest, NeverStoresAFastWrongCandidate) {
  serve_attention(device_, cost_us, [](const Variant& variant, const AttentionParams& p) {
    if (variant.config == kBest) static_cast<std::uint16_t*>(p.out)[0] = 0x4000;
  });
  const TuneReport report = tune();
  ASSERT_TRUE(stored());
  EXPECT_NE(stored()->winner.candidate.config, kBest);
  EXPECT_GT(report.num_rejected, 0u);
  const auto rejections = store_->rejections(device_.info(), kProblem, toolchain());
  const auto wrong = std::find_if(rejections.begin(), rejections.end(),
                                  [](const auto& one) { return one.candidate.config == kBest; });
  ASSERT_NE(wrong, rejections.end());
  EXPECT_EQ(wrong->stage, Stage::kVerify);
  EXPECT_EQ(wrong->rejection.reason, RejectReason::kWrongResult);
  for (const auto& one : store_->measurements(device_.info(), kProblem, toolchain())) {
    EXPECT_NE(one.candidate.config, kBest);  // it was not even timed
  }
}

TEST_F(TunerTest, SaysSoWhenNoCandidateIsRight) {
  serve_attention(device_, cost_us, [](const Variant&, const AttentionParams& p) {
    static_cast<std::uint16_t*>(p.out)[0] = 0x7fc0;
  });
  const TuneReport report = tune();
  EXPECT_TRUE(report.winners.empty());
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_NE(report.failures[0].find(kProblem.text()), std::string::npos);
  EXPECT_FALSE(stored());
}

TEST_F(TunerTest, RejectsSpillsBeforeAnythingRuns) {
  compiles_.on_compile = [](const CompileJob& job, CompileOutcome* outcome) {
    if (job.source.split_symbol.find(text_of(kBest)) != std::string::npos) {
      outcome->binary->kernels[0].spill_store_bytes = 4;
    }
  };
  tune();
  EXPECT_NE(stored()->winner.candidate.config, kBest);
}

TEST_F(TunerTest, RemembersACompileFailure) {
  compiles_.on_compile = [](const CompileJob& job, CompileOutcome* outcome) {
    if (job.source.split_symbol.find(text_of(kBest)) == std::string::npos) return;
    outcome->binary.reset();
    outcome->error = "the compiler crashed";
  };
  const TuneReport report = tune();
  EXPECT_NE(stored()->winner.candidate.config, kBest);
  EXPECT_GT(report.num_rejected, 0u);
  const int compiled = compiles_.num_compiled;
  Problem other = kProblem;  // shares the binaries
  other.num_q_heads *= 2;
  other.num_kv_heads *= 2;
  tune({other}, {});
  EXPECT_EQ(compiles_.num_compiled, compiled);
}

TEST_F(TunerTest, CompilesAgainWhatFailedForTheMachine) {
  compiles_.on_compile = [](const CompileJob& job, CompileOutcome* outcome) {
    if (job.source.split_symbol.find(text_of(kBest)) == std::string::npos) return;
    outcome->binary.reset();
    outcome->error = "cannot start a compile worker";
    outcome->is_of_machine = true;
  };
  tune();
  EXPECT_NE(stored()->winner.candidate.config, kBest);
  compiles_.on_compile = {};
  Problem other = kProblem;  // shares the binaries
  other.batch = 2;
  tune({other}, {});
  EXPECT_EQ(stored(other)->winner.candidate.config, kBest);
}

TEST_F(TunerTest, TriesAgainWhatRanOutOfMemory) {
  bool is_short = true;
  serve_attention(device_, cost_us, [&](const Variant&, const AttentionParams&) {
    if (is_short) throw CudaError("cannot allocate", 2, "CUDA_ERROR_OUT_OF_MEMORY");
  });
  EXPECT_TRUE(tune().winners.empty());
  is_short = false;
  tune();
  ASSERT_TRUE(stored());
  EXPECT_EQ(stored()->winner.candidate.config, kBest);
}

TEST_F(TunerTest, GivesEachRangeItsWinnerFromOneSetOfMeasurements) {
  Problem shorter = kProblem;
  shorter.kv = {1, 16};
  const TuneReport report = tune({kProblem, shorter}, {});
  EXPECT_EQ(report.num_tuned, 2u);
  ASSERT_TRUE(stored(shorter));
  EXPECT_EQ(stored(shorter)->match, Match::kExact);
  EXPECT_EQ(stored(shorter)->winner.measurements.size(), 5u);
  EXPECT_EQ(stored(shorter)->winner.default_candidate,
            default_candidate(shorter, device_.info()).text());
  // A third range later leaves these alone.
  Problem third = kProblem;
  third.kv = {17, 64};
  EXPECT_EQ(tune({kProblem, shorter, third}, {}).num_cached, 2u);
}

TEST_F(TunerTest, KeepsWhatWasDoneWhenInterrupted) {
  Problem second = kProblem;
  second.batch = 2;
  bool stored_one = false;
  TuneOptions options;
  options.progress = [&](const TuneProgress& progress) {
    stored_one = stored_one || progress.phase == "store";
  };
  options.stop = [&] { return stored_one; };
  const TuneReport report = tune({kProblem, second}, options);
  EXPECT_TRUE(report.interrupted);
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.num_tuned, 1u);
  EXPECT_TRUE(stored(kProblem));
  EXPECT_FALSE(stored(second));
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_NE(report.failures[0].find("stopped"), std::string::npos);
}

TEST_F(TunerTest, ResumesCompilesThatWereInterrupted) {
  TuneOptions options;
  options.stop = [&] { return compiles_.num_compiled >= 3; };
  EXPECT_TRUE(tune(options).interrupted);
  const TuneReport report = tune();
  EXPECT_EQ(report.num_compiled + 3, static_cast<std::size_t>(compiles_.num_compiled));
  EXPECT_TRUE(stored());
}

TEST_F(TunerTest, StopsInItsBudget) {
  TuneOptions options;
  options.budget_s = 1e-9;
  const TuneReport report = tune(options);
  EXPECT_FALSE(report.complete);
  EXPECT_FALSE(report.interrupted);
  EXPECT_EQ(report.failures.size(), 1u);
}

TEST_F(TunerTest, FinishesAPartialComparisonInTheNextRun) {
  tune();
  Winner partial = stored()->winner;
  partial.method = kPartialTimingMethod;
  store_->put_winner(device_.info(), partial);
  EXPECT_EQ(tune().num_tuned, 1u);
  EXPECT_EQ(stored()->winner.method, kTimingMethod);
}

TEST_F(TunerTest, ATuneThatIsCutShortTakesNoWinnerBack) {
  tune();
  const Winner whole = stored()->winner;
  bool is_first_pass_over = false;  // the default has all its times
  TuneOptions options;
  options.refresh = true;
  options.progress = [&](const TuneProgress& progress) {
    is_first_pass_over |= progress.phase == "time" && progress.done == progress.total;
  };
  options.stop = [&] { return is_first_pass_over; };
  const TuneReport report = tune(options);
  EXPECT_TRUE(report.interrupted);
  EXPECT_EQ(report.num_tuned, 0u);
  EXPECT_EQ(report.num_cached, 1u);
  EXPECT_EQ(stored()->winner.candidate, whole.candidate);
  EXPECT_EQ(stored()->winner.method, kTimingMethod);
  EXPECT_EQ(stored()->winner.measurements.size(), whole.measurements.size());
}

TEST_F(TunerTest, GivesAllMemoryBack) {
  tune();
  EXPECT_EQ(device_.live_bytes(), 0u);
  EXPECT_EQ(device_.live_modules(), 0);
}

TEST_F(TunerTest, CandidatesThatFailKeepNoMemory) {
  std::size_t peak_bytes = 0;
  device_.on_call = [&](std::string_view) {
    peak_bytes = std::max(peak_bytes, device_.live_bytes());
  };
  tune();
  const std::size_t clean_peak_bytes = std::exchange(peak_bytes, 0);
  int num_loads = 0, num_failures = 0;
  device_.on_load = [&](const Binary& binary) {
    const bool is_probes = binary.kernels.empty();
    if (is_probes || ++num_loads % 2 != 0) return;
    ++num_failures;
    throw CudaError("cannot load", 209, "CUDA_ERROR_NO_BINARY_FOR_GPU");
  };
  serve_attention(device_, cost_us, [&](const Variant& variant, const AttentionParams&) {
    if (variant.config.num_warps != 2) return;
    ++num_failures;
    throw CudaError("cannot launch", 1, "CUDA_ERROR_INVALID_VALUE");
  });
  TuneOptions options;
  options.refresh = true;
  const TuneReport report = tune(options);
  EXPECT_GT(report.num_rejected, 5u);
  EXPECT_EQ(report.num_rejected, static_cast<std::size_t>(num_failures));
  EXPECT_LE(peak_bytes, clean_peak_bytes);
  EXPECT_EQ(device_.live_bytes(), 0u);
  EXPECT_EQ(device_.live_modules(), 0);
}

TEST_F(TunerTest, NamesTheProblemThatNoCandidateFits) {
  DeviceInfo info = tuned_device_info();
  info.max_smem_per_block_bytes = 1000;
  FakeDevice tiny(info);
  LocalMeasure measure(tiny);
  const TuneReport report = Tuner(&measure, *store_, compiles_).tune({kProblem}, {});
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_NE(report.failures[0].find("limit=1000"), std::string::npos) << report.failures[0];
  EXPECT_TRUE(report.complete);
}

TEST_F(TunerTest, RefusesToTuneWithoutADevice) {
  EXPECT_THROW(Tuner(nullptr, *store_, compiles_).tune({kProblem}, {}), DeviceUnavailable);
}

TEST_F(TunerTest, SaysSoWhenNothingCompiles) {
  compiles_.on_compile = [](const CompileJob&, CompileOutcome* outcome) {
    outcome->binary.reset();
    outcome->error = "the compile worker died";
  };
  const TuneReport report =
      Tuner(nullptr, *store_, compiles_).compile_all({kProblem}, "sm_90a", {});
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_NE(report.failures[0].find("no candidate compiled; "), std::string::npos);
  EXPECT_NE(report.failures[0].find("the compile worker died"), std::string::npos);
}

TEST_F(TunerTest, CompilesForAnArchitectureWithoutADevice) {
  Tuner tuner(nullptr, *store_, compiles_);
  TuneOptions options;
  options.effort = Effort::kExhaustive;  // the device below has less shared memory
  const TuneReport report = tuner.compile_all({kProblem}, "sm_90a", options);
  EXPECT_GT(report.num_compiled, 10u);
  EXPECT_EQ(store_->binaries().size(), report.num_compiled);
  EXPECT_TRUE(report.winners.empty());
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(tuner.compile_all({kProblem}, "sm_90a", options).num_compiled, 0u);
  EXPECT_EQ(tune().num_compiled, 0u);  // a device of that architecture finds all it needs
}

}  // namespace
}  // namespace attune
