// The engine on the host device: the same steps as on a GPU, smaller.
#include <cstdlib>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "jit/host_device.h"
#include "templates/family.h"
#include "tests/runtime/growing_step.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/require_cxx.h"
#include "tests/support/temporary_folder.h"

namespace attune {
namespace {

constexpr const char* kDecode = "decode/b1/q1/kv1-512/h4x2/d64/contiguous/bf16";
constexpr const char* kDecodeBatch = "decode/b2/q1/kv1-512/h6x2/d128/softcap/contiguous/bf16";
constexpr const char* kDecodeRing = "decode/b1/q1/kv1-512/h4x2/d256/w128/ring/bf16";
constexpr const char* kVerify = "verify/b2/q8/kv1-512/h4x1/d512/contiguous/bf16";
constexpr const char* kVerifyRing = "verify/b1/q8/kv1-512/h4x2/d256/w128/ring/bf16";
constexpr Growth kGrowth{.longest = 330, .ring_capacity = 144};

class ServingHostTest : public HostCompilerTest {
 protected:
  void SetUp() override {
    HostCompilerTest::SetUp();
    options.device = "host";
    options.cache_path = (folder_.path() / "tune.db").string();
    options.cxx_path = test_host_search().cxx;
    options.log = [this](const std::string& message) { warnings.push_back(message); };
  }
  Options options;
  std::vector<std::string> warnings;

 private:
  TemporaryFolder folder_;
};

class GrowingHostTest : public ServingHostTest,
                        public ::testing::WithParamInterface<const char*> {};

TEST_P(GrowingHostTest, OneCapturedLaunchIsRightAtEveryLength) {
  Engine engine(options);
  const Attention attention = engine.prepare(GetParam());
  engine.seal();
  expect_right_while_growing(engine.device(), attention, kGrowth);
}

INSTANTIATE_TEST_SUITE_P(Small, GrowingHostTest,
                         ::testing::Values(kDecode, kDecodeBatch, kDecodeRing, kVerify,
                                           kVerifyRing));

TEST_F(ServingHostTest, AMissNamesTheCommandThatTunesItOnTheHost) {
  Engine engine(options);
  EXPECT_EQ(engine.prepare(kDecode).served(), Served::kDefault);
  ASSERT_EQ(warnings.size(), 1u);
  const std::string end = std::string("attune tune --problem '") + kDecode + "' --device host";
  EXPECT_TRUE(warnings[0].ends_with(end)) << warnings[0];

  Engine second(options);  // finds the binary of the default in the cache
  second.prepare(kDecode);
  EXPECT_EQ(second.counters().compiles, 0u);
}

TEST_F(ServingHostTest, AfterSealOnlyLaunchesReachTheDevice) {
  auto forwarding = std::make_unique<ForwardingDevice>(open_host_device());
  std::set<std::string> calls;
  forwarding->on_call = [&](std::string_view call) { calls.emplace(call); };
  options.strict = true;
  Engine engine(options, std::move(forwarding));
  const Attention decode = engine.prepare(kDecode);
  engine.seal();
  GrowingStep step(engine.device(), decode, kGrowth.longest);
  step.grow_to(200, nullptr);
  calls.clear();
  engine.prepare(kDecode).launch(step.args(), nullptr);
  calls.erase("tensor_map");  // arithmetic, of which the GPU knows nothing
  EXPECT_EQ(calls, std::set<std::string>{"launch"});
  EXPECT_LE(step.error(nullptr), kMaxEdgeRelativeL2);
  EXPECT_THROW(engine.prepare(kVerify), NotPrepared);
}

struct OverlapProblem {
  const char* family;  // of the kernel
  const char* text;
};
void PrintTo(const OverlapProblem& one, std::ostream* out) { *out << one.family << one.text; }

class OverlapHostTest : public ServingHostTest,
                        public ::testing::WithParamInterface<OverlapProblem> {};

TEST_P(OverlapHostTest, ChangesNoBit) {
  for (const Family& family : families()) {
    if (family.name != GetParam().family) options.disabled_families.emplace_back(family.name);
  }
  Engine engine(options);
  const Attention attention = engine.prepare(GetParam().text);
  EXPECT_EQ(Candidate::parse(attention.candidate_text()).family, GetParam().family);
  GrowingStep step(engine.device(), attention, kGrowth.longest);
  // Fewer keys than query tokens, none that is older, few of them, and many tiles.
  for (const int kv_len : {1, 8, 31, 200, kGrowth.longest}) {
    std::vector<std::vector<std::byte>> results;
    step.grow_to(kv_len, nullptr);
    for (const bool overlap : {false, true}) {
      AttentionArgs args = step.args();
      args.overlap = overlap;
      attention.launch(args, nullptr);
      EXPECT_LE(step.error(nullptr), kMaxEdgeRelativeL2) << kv_len;
      results.push_back(step.result(nullptr));
    }
    EXPECT_EQ(results[0], results[1]) << kv_len;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, OverlapHostTest,
    ::testing::Values(OverlapProblem{"splitkv", kDecode}, OverlapProblem{"swapab", kDecode},
                      OverlapProblem{"swapab", "verify/b2/q4/kv1-512/h4x1/d256/contiguous/bf16"},
                      OverlapProblem{"oneround", "verify/b2/q2/kv1-512/h4x1/d256/contiguous/bf16"},
                      OverlapProblem{"wgmma", kVerify},
                      OverlapProblem{"tiled", "prefill/b1/q16/kv1-512/h4x2/d64/contiguous/bf16"}));

// A launch that breaks a rule is an error of the caller's, and the engine goes on.
TEST_F(ServingHostTest, WithChecksABadPointerIsNamedAndTheNextLaunchIsRight) {
  options.device = "host+checks";
  Engine engine(options);
  const Attention decode = engine.prepare(kDecode);
  GrowingStep step(engine.device(), decode, kGrowth.longest);
  step.grow_to(40, nullptr);
  AttentionArgs bad = step.args();
  bad.k = 0x10000;
  try {
    decode.launch(bad, nullptr);
    ADD_FAILURE() << "a launch on memory that is not there";
  } catch (const CudaError& error) {
    // Of whichever head's CTA was first.
    EXPECT_NE(std::string(error.what()).find("at address 0x10"), std::string::npos) << error.what();
  }
  decode.launch(step.args(), nullptr);
  EXPECT_LE(step.error(nullptr), kMaxEdgeRelativeL2);
}

}  // namespace
}  // namespace attune
