// The default policy compiles, so these tests need NVRTC; the device is a fake one.
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "cache/compile_claims.h"
#include "jit/source.h"
#include "tests/runtime/serving_fixture.h"
#include "tests/support/require_nvrtc.h"
#include "tuner/space.h"

namespace attune {
namespace {

class DefaultTest : public ServingTest {
 protected:
  void SetUp() override {
    options.nvrtc_path = test_nvrtc_search().nvrtc_path;
    try {
      compiler_version_ = open_compiler({.nvrtc = test_nvrtc_search()}, "sm_90a")->version();
    } catch (const DeviceUnavailable& error) {
      if (is_required("ATTUNE_REQUIRE_NVRTC")) FAIL() << error.what();
      GTEST_SKIP() << error.what();
    }
  }
  std::string compiler_version_;
  const Problem problem_ = Problem::parse(kDecode);
  const Candidate default_ = default_candidate(problem_, fake_device_info());
};

TEST_F(DefaultTest, AMissCompilesTheDefaultAndWarnsOnceWithTheCommand) {
  auto serving = engine();
  const Attention attention = serving->prepare(kDecode);
  EXPECT_EQ(attention.served(), Served::kDefault);
  EXPECT_EQ(attention.candidate_text(), default_.text());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(contains(warnings[0], "serving the default " + default_.text()));
  EXPECT_TRUE(contains(warnings[0], std::string("attune tune --problem '") + kDecode + "'"));
  EXPECT_TRUE(contains(attention.explain(), "to tune"));
  const Counters counters = serving->counters();
  EXPECT_EQ(counters.defaults, 1u);
  EXPECT_EQ(counters.compiles, 1u);
}

TEST_F(DefaultTest, ASecondProcessTakesTheDefaultFromTheCache) {
  engine()->prepare(kDecode);
  auto second = engine();
  EXPECT_EQ(second->prepare(kDecode).served(), Served::kDefault);
  EXPECT_EQ(second->counters().compiles, 0u);
}

TEST_F(DefaultTest, TakesTheDefaultThatAnotherProcessCompilesJustNow) {
  engine()->prepare(kDecode);  // to have its binary
  const auto shared = TuneStore::open(options.cache_path);
  const Binary binary = shared->find_binary(shared->binaries().at(0).key).value();
  options.cache_path += ".second";
  const auto store = TuneStore::open(options.cache_path);
  warnings.clear();
  std::thread other([&, held = CompileClaims(*store).claim(binary.key)]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    store->put_binary(binary, "other");
    held = CompileClaims::Claim();
  });
  auto serving = engine();
  EXPECT_EQ(serving->prepare(kDecode).served(), Served::kDefault);
  other.join();
  EXPECT_EQ(serving->counters().compiles, 0u);
  EXPECT_TRUE(contains(warnings.at(0), "waiting for process "));
}

TEST_F(DefaultTest, ADamagedWinnerGivesTheDefaultWithOneWarning) {
  const Winner winner = made_up_winner(kDecode, kCandidate, compiler_version_);
  store(winner);
  auto fake = device();
  fake->on_load = [&](const Binary& binary) {
    if (binary.key == winner.binary.key) throw CudaError("cannot load a module", 200, "INVALID");
  };
  Engine serving(options, std::move(fake));
  const Attention attention = serving.prepare(kDecode);
  EXPECT_EQ(attention.served(), Served::kDefault);
  EXPECT_NO_THROW(attention.launch(plausible_args(), nullptr));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(contains(warnings[0], "winner=" + winner.candidate.text()));
  EXPECT_TRUE(contains(warnings[0], "--refresh"));
}

TEST_F(DefaultTest, AStoredDefaultThatCannotBeLoadedIsCompiledAgain) {
  engine()->prepare(kDecode);
  warnings.clear();
  auto fake = device();
  int loads = 0;
  fake->on_load = [&](const Binary&) {
    if (++loads == 1) throw CudaError("cannot load a module", 200, "INVALID");
  };
  Engine serving(options, std::move(fake));
  EXPECT_EQ(serving.prepare(kDecode).served(), Served::kDefault);
  EXPECT_EQ(serving.counters().compiles, 1u);
  EXPECT_EQ(loads, 2);
}

TEST_F(DefaultTest, AWinnerOfAnotherNvrtcIsAMissHere) {
  store(made_up_winner(kDecode, kCandidate, "9.9"));
  EXPECT_EQ(engine()->prepare(kDecode).served(), Served::kDefault);
}

TEST_F(DefaultTest, WithoutACacheFileMemoryDoes) {
  options.cache_path.clear();
  EXPECT_EQ(engine()->prepare(kDecode).served(), Served::kDefault);
}

TEST_F(DefaultTest, LateWorkOfALenientEngineCompilesAndIsCounted) {
  auto serving = engine();
  serving->seal();
  EXPECT_EQ(serving->prepare(kDecode).served(), Served::kDefault);
  const Counters counters = serving->counters();
  EXPECT_EQ(counters.late_prepares, 1u);
  EXPECT_EQ(counters.compiles, 1u);
}

TEST_F(DefaultTest, NoCandidateFitsIsRefusedWithTheNumbers) {
  DeviceInfo small = fake_device_info();
  small.max_smem_per_block_bytes = 16 << 10;
  Engine serving(options, std::make_unique<FakeDevice>(small));
  EXPECT_TRUE(contains(message_of<InvalidArgument>([&] { serving.prepare(kDecode); }), "limit"));
}

}  // namespace
}  // namespace attune
