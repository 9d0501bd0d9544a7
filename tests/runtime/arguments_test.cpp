#include "runtime/arguments.h"

#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/runtime/serving_fixture.h"

namespace attune {
namespace {

// The message for kDecode or `problem` with one change to arguments that are fine.
std::string refusal(const std::function<void(AttentionArgs&)>& change,
                    const char* problem_text = kDecode) {
  const Problem problem = Problem::parse(problem_text);
  const LaunchPlan plan = plan_launch(problem, Candidate::parse(kCandidate));
  AttentionArgs args = plausible_args();
  change(args);
  return message_of<InvalidArgument>([&] { check_arguments(problem, plan, args); });
}

TEST(Arguments, AdmitsWhatTheContractAdmits) {
  EXPECT_EQ(refusal([](AttentionArgs&) {}), "");
  EXPECT_EQ(refusal([](AttentionArgs&) {}, kVerify8), "");
  EXPECT_EQ(refusal([](AttentionArgs& args) { args.lse = 0x70004; }), "");
}

TEST(Arguments, NamesANullPointerAndWhatIsRefused) {
  EXPECT_EQ(refusal([](AttentionArgs& args) { args.q = 0; }),
            std::string("cannot launch attention: q=0x0 problem=") + kDecode +
                "; pass a device pointer as q");
  EXPECT_TRUE(contains(refusal([](AttentionArgs& args) { args.k = 0; }), " k=0x0 "));
  EXPECT_TRUE(contains(refusal([](AttentionArgs& args) { args.v = 0; }), " v=0x0 "));
  EXPECT_TRUE(contains(refusal([](AttentionArgs& args) { args.out = 0; }), " out=0x0 "));
  EXPECT_TRUE(contains(refusal([](AttentionArgs& args) { args.kv_len = 0; }), " kv_len=0x0 "));
  EXPECT_TRUE(
      contains(refusal([](AttentionArgs& args) { args.workspace = 0; }), " workspace=0x0 "));
}

TEST(Arguments, NamesAMisalignedPointerAndTheAlignment) {
  EXPECT_TRUE(contains(refusal([](AttentionArgs& args) { args.q += 8; }), "q=0x10008 problem="));
  EXPECT_TRUE(
      contains(refusal([](AttentionArgs& args) { args.q += 8; }), "; q has to be 16-byte aligned"));
  EXPECT_TRUE(contains(refusal([](AttentionArgs& args) { args.k += 2; }), "k has to be 16-byte"));
  EXPECT_TRUE(contains(refusal([](AttentionArgs& args) { args.v += 8; }), "v has to be 16-byte"));
  EXPECT_TRUE(
      contains(refusal([](AttentionArgs& args) { args.out += 4; }), "out has to be 16-byte"));
  EXPECT_TRUE(
      contains(refusal([](AttentionArgs& args) { args.kv_len += 2; }), "kv_len has to be 4-byte"));
  EXPECT_TRUE(
      contains(refusal([](AttentionArgs& args) { args.lse = 0x70002; }), "lse has to be 4-byte"));
  EXPECT_TRUE(contains(refusal([](AttentionArgs& args) { args.workspace += 128; }),
                       "workspace has to be 256-byte"));
}

TEST(Arguments, NeedsNoWorkspaceWhenThePlanHasNone) {
  const Problem problem = Problem::parse(kDecode);
  const LaunchPlan plan = plan_launch(problem, Candidate::parse("splitkv/m16n64s1w8/x1"));
  ASSERT_EQ(plan.workspace_bytes(), 0u);
  AttentionArgs args = plausible_args();
  args.workspace = 0;
  EXPECT_NO_THROW(check_arguments(problem, plan, args));
}

TEST(Arguments, RefusesEveryStrideThatIsNoMultipleOfEight) {
  const auto strides = {
      std::pair{"q", &AttentionArgs::q_strides}, std::pair{"k", &AttentionArgs::k_strides},
      std::pair{"v", &AttentionArgs::v_strides}, std::pair{"out", &AttentionArgs::out_strides}};
  for (const auto& [name, member] : strides) {
    for (int idx = 0; idx < 3; ++idx) {
      for (const std::int64_t value : {std::int64_t{516}, std::int64_t{-512}, std::int64_t{1}}) {
        EXPECT_TRUE(contains(refusal([&](AttentionArgs& args) { (args.*member)[idx] = value; }),
                             fmt::format(" {}_strides[{}]={} ", name, idx, value)));
      }
      EXPECT_EQ(refusal([&](AttentionArgs& args) { (args.*member)[idx] = 1024; }), "");
    }
  }
}

TEST(Arguments, RefusesOutputRowsThatOverlap) {
  EXPECT_TRUE(contains(refusal([](AttentionArgs& args) { args.out_strides[2] = 504; }),
                       "the head stride is 0 (dense) or at least 512"));
}

TEST(Arguments, RefusesACapacityThatCannotHoldTheKeys) {
  EXPECT_TRUE(
      contains(refusal([](AttentionArgs& args) { args.capacity = 0; }), "capacity=0 least=1"));
  EXPECT_TRUE(contains(refusal([](AttentionArgs& args) { args.capacity = -5; }), "capacity=-5"));
  EXPECT_EQ(refusal([](AttentionArgs& args) { args.capacity = 1; }), "");
  const std::int64_t beyond = std::int64_t{1} << 31;
  EXPECT_TRUE(contains(refusal([&](AttentionArgs& args) { args.capacity = beyond; }),
                       "capacity=2147483648"));
}

TEST(Arguments, WantsARingOfWindowAndQueryTokens) {
  EXPECT_TRUE(contains(refusal([](AttentionArgs& args) { args.capacity = 1030; }, kVerify8),
                       "capacity=1030 least=1031"));
  EXPECT_EQ(refusal([](AttentionArgs& args) { args.capacity = 1031; }, kVerify8), "");
  constexpr const char* kShortWindow = "decode/b1/q1/kv1-4096/h8x2/d64/w16/ring/bf16";
  EXPECT_TRUE(contains(refusal([](AttentionArgs& args) { args.capacity = 127; }, kShortWindow),
                       "capacity=127 least=128"));
  EXPECT_EQ(refusal([](AttentionArgs& args) { args.capacity = 128; }, kShortWindow), "");
}

TEST(Arguments, RefusesAScaleThatIsNotPositiveAndFinite) {
  for (const float value : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    EXPECT_TRUE(contains(refusal([&](AttentionArgs& args) { args.sm_scale = value; }),
                         "sm_scale is above 0 and finite"));
  }
}

TEST(Arguments, WantsASoftcapExactlyWhenTheProblemHasOne) {
  EXPECT_TRUE(contains(refusal([](AttentionArgs& args) { args.softcap = 30; }), "softcap=30 "));
  EXPECT_TRUE(contains(refusal([](AttentionArgs& args) { args.softcap = std::nanf(""); }),
                       "the problem has no softcap"));
  constexpr const char* kSoftcap = "decode/b1/q1/kv1-512/h8x2/d128/softcap/contiguous/bf16";
  EXPECT_EQ(refusal([](AttentionArgs& args) { args.softcap = 30; }, kSoftcap), "");
  for (const float value : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    EXPECT_TRUE(contains(refusal([&](AttentionArgs& args) { args.softcap = value; }, kSoftcap),
                         "the problem has a softcap"));
  }
}

TEST(Arguments, FillsDenseStridesAndKeepsGivenOnes) {
  const Problem problem = Problem::parse(kVerify8);
  const LaunchPlan plan = plan_launch(problem, Candidate::parse(kCandidate));
  AttentionArgs args = plausible_args();
  args.capacity = 2048;
  args.v_strides[1] = 1024;
  const AttentionParams params = attention_params(problem, plan, args);
  EXPECT_EQ(params.q_batch_stride, 8 * 8 * 256);
  EXPECT_EQ(params.q_token_stride, 8 * 256);
  EXPECT_EQ(params.q_head_stride, 256);
  EXPECT_EQ(params.k_batch_stride, 2048 * 2 * 256);
  EXPECT_EQ(params.k_token_stride, 2 * 256);
  EXPECT_EQ(params.v_batch_stride, 2048 * 2 * 256);
  EXPECT_EQ(params.v_token_stride, 1024);
  EXPECT_EQ(params.out_batch_stride, 8 * 8 * 256);
  EXPECT_EQ(params.ring_capacity, 2048);
  EXPECT_EQ(params.batch, 2);
  EXPECT_EQ(reinterpret_cast<std::uint64_t>(params.q), args.q);
  EXPECT_EQ(reinterpret_cast<std::uint64_t>(params.lse_partial),
            args.workspace + plan.o_partial_bytes);
  EXPECT_EQ(params.lse, nullptr);
}

TEST(Arguments, TellTheKernelHowFarItMayReadAndWhen) {
  const Problem problem = Problem::parse(kDecode);
  const LaunchPlan plan = plan_launch(problem, Candidate::parse(kCandidate));
  AttentionArgs args = plausible_args();
  args.capacity = 1000;
  EXPECT_EQ(attention_params(problem, plan, args).kv_capacity, 1000);
  EXPECT_EQ(attention_params(problem, plan, args).overlap, 0);
  args.overlap = true;
  EXPECT_EQ(attention_params(problem, plan, args).overlap, 1);
}

TEST(Arguments, ContiguousBuffersHaveNoRing) {
  const Problem problem = Problem::parse(kDecode);
  const LaunchPlan plan = plan_launch(problem, Candidate::parse(kCandidate));
  EXPECT_EQ(attention_params(problem, plan, plausible_args()).ring_capacity, 0);
}

}  // namespace
}  // namespace attune
