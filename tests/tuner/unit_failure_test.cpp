// What a tune makes of candidates that harm their process, by a service that says what it is told.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "common/error.h"
#include "tests/tuner/fake_attention.h"
#include "tuner/measure_service.h"
#include "tuner/space.h"
#include "tuner/tuner.h"

namespace attune {
namespace {

const Problem kProblem = Problem::parse("decode/b1/q1/kv1-64/h2x1/d64/contiguous/bf16");

// Admits and times everything, the first candidate in the text's order fastest, unless told else.
class ScriptedMeasure : public MeasureService {
 public:
  const DeviceInfo& device() const override { return device_; }
  void open(const MeasureUnit& unit) override {
    ++num_open;
    if (on_open) on_open(unit);
  }
  void close() override { --num_open; }
  VerifyOutcome verify(const Candidate& candidate, const Binary&, const Stop& stop) override {
    verified.push_back(candidate);
    if (on_verify) {
      if (auto outcome = on_verify(candidate, stop)) return *outcome;
    }
    return Admission{};
  }
  TimeOutcome time(const Candidate& candidate, const Binary&, int, const TimerOptions&,
                   const Stop& stop) override {
    timed.push_back(candidate);
    if (on_time) {
      if (auto outcome = on_time(candidate, stop)) return *outcome;
    }
    return summarize(std::vector<double>(3, 10.0 + time_rank(candidate)));
  }
  static double time_rank(const Candidate& candidate) {
    return candidate.config.block_n + 10 * candidate.config.num_stages + candidate.split_cap;
  }

  std::function<void(const MeasureUnit&)> on_open;
  std::function<std::optional<VerifyOutcome>(const Candidate&, const Stop&)> on_verify;
  std::function<std::optional<TimeOutcome>(const Candidate&, const Stop&)> on_time;
  std::vector<Candidate> verified, timed;
  int num_open = 0;

 private:
  static DeviceInfo small_device() {
    DeviceInfo info = small_l2_device_info();
    info.max_smem_per_block_bytes = 100 << 10;
    return info;
  }
  DeviceInfo device_ = small_device();
};

class UnitFailure : public testing::Test {
 protected:
  // Of splitkv alone.
  TuneReport tune(const std::vector<Problem>& problems = {kProblem}, TuneOptions options = {}) {
    options.disabled_families = kOff;
    options.effort = Effort::kExhaustive;
    return Tuner(&measure, *store, compiles).tune(problems, options);
  }
  Toolchain toolchain() const {
    return toolchain_of(*find_family("splitkv"), "sm_90a", compiles.compiler_version());
  }
  std::vector<RejectionRecord> ran_and_rejected(const Problem& problem = kProblem) const {
    auto all = store->rejections(measure.device(), problem, toolchain());
    std::erase_if(all, [](const auto& one) { return one.stage == Stage::kPrune; });
    return all;
  }
  std::optional<WinnerHit> stored(const Problem& problem = kProblem) const {
    return store->find_winner(measure.device(), problem, toolchain(), kTimingMethod);
  }
  std::vector<Candidate> kept() const {
    return candidate_space(kProblem, measure.device(), kOff).kept;
  }

  const std::vector<std::string> kOff = {"swapab", "oneround"};
  ScriptedMeasure measure;
  FakeCompiles compiles;
  std::unique_ptr<TuneStore> store = TuneStore::open_in_memory();
};

TEST_F(UnitFailure, OneThatHangsIsARejectionAndNotTriedAgain) {
  const Candidate hangs = kept()[1];
  measure.on_verify = [&](const Candidate& one, const Stop&) -> std::optional<VerifyOutcome> {
    if (one != hangs) return {};
    return Rejection{RejectReason::kTimeout, "no answer in 10 s: its process was ended"};
  };
  EXPECT_EQ(tune().num_tuned, 1u);
  ASSERT_EQ(ran_and_rejected().size(), 1u);
  EXPECT_EQ(ran_and_rejected()[0].candidate, hangs);
  EXPECT_EQ(ran_and_rejected()[0].stage, Stage::kVerify);
  EXPECT_EQ(ran_and_rejected()[0].rejection.reason, RejectReason::kTimeout);
  EXPECT_EQ(measure.verified.size(), kept().size());
  EXPECT_EQ(std::count(measure.timed.begin(), measure.timed.end(), hangs), 0);

  measure.verified.clear();
  Winner partial = stored()->winner;
  partial.method = kPartialTimingMethod;
  store->put_winner(measure.device(), partial);
  EXPECT_EQ(tune().num_tuned, 1u);
  EXPECT_EQ(std::count(measure.verified.begin(), measure.verified.end(), hangs), 0);
  EXPECT_EQ(ran_and_rejected().size(), 1u);
}

TEST_F(UnitFailure, WhatTheSystemEndedIsTriedAgainInTheNextRun) {
  measure.on_verify = [](const Candidate&, const Stop&) -> std::optional<VerifyOutcome> {
    return Rejection{RejectReason::kLaunch, "the measure worker was ended from outside: signal 9"};
  };
  EXPECT_EQ(tune().num_tuned, 0u);
  EXPECT_EQ(ran_and_rejected().size(), kept().size());
  measure.on_verify = {};
  EXPECT_EQ(tune().num_tuned, 1u);
  EXPECT_TRUE(ran_and_rejected().empty());
}

TEST_F(UnitFailure, OneThatDiesInTheRematchLosesOnlyItsOwnTimes) {
  const auto faster = [](const Candidate& a, const Candidate& b) {
    return ScriptedMeasure::time_rank(a) < ScriptedMeasure::time_rank(b);
  };
  tune();
  const Candidate clean_winner = stored()->winner.candidate;
  const std::vector<Candidate> all = kept();
  Candidate second = *std::max_element(all.begin(), all.end(), faster);
  for (const Candidate& one : all) {
    if (one != clean_winner && faster(one, second)) second = one;
  }
  std::map<Candidate, int> count;
  measure.on_time = [&](const Candidate& one, const Stop&) -> std::optional<TimeOutcome> {
    if (one != second || ++count[one] <= 7) return {};  // 1 to 64: the first pass
    return Rejection{RejectReason::kLaunch, "the measure worker died: signal 11"};
  };
  TuneOptions options;
  options.refresh = true;
  EXPECT_EQ(tune({kProblem}, options).num_tuned, 1u);
  EXPECT_EQ(count[second], 8);  // not asked for again
  EXPECT_EQ(stored()->winner.candidate, clean_winner);
  ASSERT_EQ(ran_and_rejected().size(), 1u);
  EXPECT_EQ(ran_and_rejected()[0].candidate, second);
  EXPECT_EQ(ran_and_rejected()[0].stage, Stage::kTime);
  EXPECT_TRUE(ran_and_rejected()[0].rejection.detail.starts_with("kv_len="));
}

TEST_F(UnitFailure, OneThatIsStoppedWhileItIsVerifiedIsNoRejection) {
  bool pressed = false;
  measure.on_verify = [&](const Candidate&, const Stop& stop) -> std::optional<VerifyOutcome> {
    if (measure.verified.size() < 3) return {};
    pressed = true;
    EXPECT_TRUE(stop());
    return Dropped{};
  };
  TuneOptions options;
  options.stop = [&] { return pressed; };
  const TuneReport report = tune({kProblem}, options);
  EXPECT_TRUE(report.interrupted);
  EXPECT_EQ(measure.verified.size(), 3u);
  EXPECT_TRUE(ran_and_rejected().empty());
  EXPECT_TRUE(measure.timed.empty());
  EXPECT_EQ(measure.num_open, 0);
  measure.on_verify = {};
  EXPECT_EQ(tune().num_tuned, 1u);
}

TEST_F(UnitFailure, OneThatIsStoppedWhileItIsTimedLeavesNoCompleteWinner) {
  bool pressed = false;
  // The last one of the first pass is stopped; the default is far ahead of the others, alone.
  const std::size_t num_first_pass = kept().size();
  measure.on_time = [&](const Candidate&, const Stop& stop) -> std::optional<TimeOutcome> {
    const bool is_default = measure.timed.size() == 1;
    if (measure.timed.size() < num_first_pass) return summarize({is_default ? 10.0 : 100.0});
    pressed = true;
    EXPECT_TRUE(stop());
    return Dropped{};
  };
  TuneOptions options;
  options.stop = [&] { return pressed; };
  Problem single = kProblem;
  single.kv = {64, 64};
  const TuneReport report = tune({single}, options);
  EXPECT_TRUE(report.interrupted);
  EXPECT_TRUE(ran_and_rejected(single).empty());
  ASSERT_TRUE(stored(single));
  EXPECT_EQ(stored(single)->winner.method, kPartialTimingMethod);
  measure.on_time = {};
  pressed = false;
  EXPECT_EQ(tune({single}, {}).num_tuned, 1u);
  EXPECT_EQ(stored(single)->winner.method, kTimingMethod);
}

TEST_F(UnitFailure, AUnitThatCannotBePreparedCostsNoOther) {
  Problem second = kProblem;
  second.batch = 2;
  measure.on_verify = [&](const Candidate&, const Stop&) -> std::optional<VerifyOutcome> {
    if (measure.verified.size() > 1) return {};
    throw UnitError("the buffers do not fit");
  };
  const TuneReport report = tune({kProblem, second});
  EXPECT_EQ(report.num_tuned, 1u);
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_EQ(report.failures[0], kProblem.text() + ": the buffers do not fit");
  EXPECT_TRUE(stored(second));
  EXPECT_EQ(measure.num_open, 0);
}

TEST_F(UnitFailure, AWorkerThatCannotStartAnyMoreKeepsWhatIsStored) {
  Problem second = kProblem;
  second.batch = 2;
  int num_units = 0;
  measure.on_open = [&](const MeasureUnit&) { ++num_units; };
  measure.on_verify = [&](const Candidate&, const Stop&) -> std::optional<VerifyOutcome> {
    if (num_units == 1) return {};
    if (measure.verified.size() == kept().size() + 2)
      throw DeviceUnavailable("the measure worker does not start");
    return Rejection{RejectReason::kTimeout, "no answer in 10 s"};
  };
  EXPECT_THROW(tune({kProblem, second}), DeviceUnavailable);
  EXPECT_TRUE(stored(kProblem));
  EXPECT_FALSE(stored(second));
  EXPECT_FALSE(ran_and_rejected(second).empty());  // what was found before it
  EXPECT_EQ(measure.num_open, 0);
}

TEST_F(UnitFailure, AnAuditGoesOnAfterOneThatHangs) {
  const Problem wide = Problem::parse("decode/b1/q1/kv1-64/h1x1/d512/contiguous/bf16");
  Tuner tuner(&measure, *store, compiles);
  std::size_t num_hung = 0;
  measure.on_verify = [&](const Candidate&, const Stop&) -> std::optional<VerifyOutcome> {
    if (measure.verified.size() != 2) return {};
    ++num_hung;
    return Rejection{RejectReason::kTimeout, "no answer in 10 s"};
  };
  const auto audits = tuner.audit_register_rule(wide, 64);
  ASSERT_GT(audits.size(), 2u);
  EXPECT_EQ(num_hung, 1u);
  EXPECT_EQ(audits.back().failure, "no answer in 10 s");
  EXPECT_EQ(measure.timed.size(), audits.size() - 1);
}

}  // namespace
}  // namespace attune
