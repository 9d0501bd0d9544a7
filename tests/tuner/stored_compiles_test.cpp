// Compiles on one machine, measures on another that has no compiler.
#include "tuner/stored_compiles.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/tuner/fake_attention.h"
#include "tuner/space.h"
#include "tuner/tuner.h"

namespace attune {
namespace {

const Problem kProblem = Problem::parse("decode/b1/q1/kv1-64/h2x1/d64/contiguous/bf16");

// Keys as a real compiler makes them.
class VersionedCompiles : public FakeCompiles {
 public:
  explicit VersionedCompiles(std::string version) : version_(std::move(version)) {}
  std::string compiler_version() const override { return version_; }
  Digest key(const Source& source, const std::string& arch) const override {
    return source_key(source, arch, compile_options(arch), version_);
  }

 private:
  std::string version_;
};

class StoredCompilesTest : public ::testing::Test {
 protected:
  StoredCompilesTest() {
    serve_attention(device_, [](const Variant&, const AttentionParams&) { return 10.0; });
  }
  static DeviceInfo info() {
    DeviceInfo info = small_l2_device_info();
    info.max_smem_per_block_bytes = 20 << 10;
    return info;
  }
  TuneReport compile(FakeCompiles& compiles, const TuneOptions& options = {}) {
    return Tuner(nullptr, *store_, compiles).compile_all({kProblem}, "sm_90a", options);
  }
  TuneReport measure(StoredCompiles& compiles) {
    return Tuner(&device_, *store_, compiles).tune({kProblem}, {});
  }

  FakeDevice device_{info()};
  std::unique_ptr<TuneStore> store_ = TuneStore::open_in_memory();
};

TEST_F(StoredCompilesTest, MeasuresWhatAnotherMachineCompiled) {
  VersionedCompiles elsewhere("13.0");
  compile(elsewhere);
  ASSERT_EQ(stored_compiler_version(*store_, {kProblem}, device_.info()), "13.0");
  StoredCompiles compiles("13.0");
  const TuneReport report = measure(compiles);
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.num_tuned, 1u);
  EXPECT_EQ(report.num_compiled, 0u);
  EXPECT_TRUE(compiles.missing().empty());
  EXPECT_EQ(report.winners.at(0).method, kTimingMethod);
}

TEST_F(StoredCompilesTest, WhatIsMissingIsNamedAndTheWinnerIsPartial) {
  VersionedCompiles elsewhere("13.0");
  elsewhere.on_compile = [](const CompileJob& job, CompileOutcome* outcome) {
    if (job.source.split_symbol.find("w4") == std::string::npos) return;
    outcome->binary.reset();
    outcome->is_of_machine = true;  // was stopped, say
  };
  compile(elsewhere);
  StoredCompiles compiles("13.0");
  const TuneReport report = measure(compiles);
  EXPECT_FALSE(report.complete);
  ASSERT_FALSE(compiles.missing().empty());
  for (const std::string& symbol : compiles.missing()) {
    EXPECT_NE(symbol.find("w4"), std::string::npos) << symbol;
  }
  ASSERT_EQ(report.num_tuned, 1u);
  EXPECT_EQ(report.winners.at(0).method, kPartialTimingMethod);
  // Not remembered as failures: a compiler may do better.
  VersionedCompiles later("13.0");
  const TuneReport finished = Tuner(&device_, *store_, later).tune({kProblem}, {});
  EXPECT_EQ(finished.num_compiled, compiles.missing().size());
  EXPECT_EQ(finished.winners.at(0).method, kTimingMethod);
}

TEST_F(StoredCompilesTest, TheVersionWithMostOfTheProblemsIsTaken) {
  VersionedCompiles older("12.9"), newer("13.0");
  compile(older);
  int num_left = 3;
  TuneOptions few;
  few.stop = [&] { return num_left-- <= 0; };
  compile(newer, few);
  EXPECT_EQ(stored_compiler_version(*store_, {kProblem}, device_.info()), "12.9");
}

TEST_F(StoredCompilesTest, AnEmptyCacheSaysHowToFillIt) {
  try {
    stored_compiler_version(*store_, {kProblem}, device_.info());
    FAIL();
  } catch (const CacheError& error) {
    EXPECT_NE(std::string(error.what()).find("attune tune --compile-only --arch sm_90a"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace attune
