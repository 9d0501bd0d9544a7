#include <gtest/gtest.h>

#include "jit/device.h"
#include "jit/source.h"
#include "tests/support/fake_device.h"

namespace attune {
namespace {

struct Launched {
  std::string symbol;
  KernelLaunch shape;
  int window;
};

class LaunchTest : public testing::Test {
 protected:
  LaunchTest() {
    device_.on_launch = [this](const Kernel& kernel, const KernelLaunch& shape,
                               const void* params) {
      const auto* attention = static_cast<const AttentionParams*>(params);
      launched_.push_back({FakeDevice::symbol_of(kernel), shape, attention->window});
    };
    plan_.split = {.grid = {33, 4, 1}, .block = {256, 1, 1}, .smem_bytes = 150000};
    plan_.combine = {.grid = {32, 4, 1}, .block = {128, 1, 1}, .smem_bytes = 0};
    plan_.needs_combine = true;
    params_.window = 77;
  }

  FakeDevice device_;
  std::vector<Launched> launched_;
  Variant variant_ = Variant::parse("splitkv/d512/contiguous/bf16/m16n64s1w8");
  LaunchPlan plan_;
  AttentionParams params_{};
};

TEST_F(LaunchTest, RunsTheSplitThenTheCombine) {
  const AttentionKernels kernels = load_attention(device_, Binary{}, variant_, plan_);
  launch_attention(device_, kernels, plan_, params_, nullptr);
  ASSERT_EQ(launched_.size(), 2u);
  EXPECT_EQ(launched_[0].symbol, "splitkv_d512_contiguous_bf16_m16n64s1w8");
  EXPECT_EQ(launched_[0].shape.grid, plan_.split.grid);
  EXPECT_EQ(launched_[0].shape.smem_bytes, 150000);
  EXPECT_EQ(launched_[0].window, 77);
  EXPECT_EQ(launched_[1].symbol, "combine_d512_bf16");
  EXPECT_EQ(launched_[1].shape.block, plan_.combine.block);
}

TEST_F(LaunchTest, LeavesTheCombineOutWhereThePlanDoes) {
  plan_.needs_combine = false;
  const AttentionKernels kernels = load_attention(device_, Binary{}, variant_, plan_);
  launch_attention(device_, kernels, plan_, params_, nullptr);
  EXPECT_EQ(launched_.size(), 1u);
}

TEST_F(LaunchTest, FailsWhenTheBinaryLacksTheKernel) {
  Binary binary;
  binary.kernels.push_back({.symbol = "another",
                            .registers = 0,
                            .stack_bytes = 0,
                            .spill_store_bytes = 0,
                            .spill_load_bytes = 0,
                            .static_smem_bytes = 0});
  EXPECT_THROW(load_attention(device_, binary, variant_, plan_), CudaError);
  EXPECT_EQ(device_.live_modules(), 0);
}

TEST_F(LaunchTest, UnloadsTheModuleWithTheKernels) {
  {
    const AttentionKernels kernels = load_attention(device_, Binary{}, variant_, plan_);
    EXPECT_EQ(device_.live_modules(), 1);
  }
  EXPECT_EQ(device_.live_modules(), 0);
}

TEST_F(LaunchTest, CallsNothingButLaunch) {
  const AttentionKernels kernels = load_attention(device_, Binary{}, variant_, plan_);
  std::vector<std::string> calls;
  device_.on_call = [&](std::string_view call) { calls.emplace_back(call); };
  launch_attention(device_, kernels, plan_, params_, nullptr);
  EXPECT_EQ(calls, (std::vector<std::string>{"launch", "launch"}));
}

TEST_F(LaunchTest, ReplaysCapturedParametersByValue) {
  const AttentionKernels kernels = load_attention(device_, Binary{}, variant_, plan_);
  const Stream stream = device_.create_stream();
  const Graph graph = device_.capture(
      stream.get(), [&] { launch_attention(device_, kernels, plan_, params_, stream.get()); });
  EXPECT_TRUE(launched_.empty());
  params_.window = 0;
  device_.launch(graph, stream.get());
  ASSERT_EQ(launched_.size(), 2u);
  EXPECT_EQ(launched_[0].window, 77);
}

TEST(DeviceHandle, ReleasesOnceAfterMoves) {
  int released = 0;
  int object = 0;
  {
    Stream first(&object, [&](void*) { ++released; });
    Stream second(std::move(first));
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): empty after a move
    first = std::move(second);
    EXPECT_TRUE(first);
    EXPECT_EQ(released, 0);
    first = Stream();
    EXPECT_EQ(released, 1);
  }
  EXPECT_EQ(released, 1);
}

}  // namespace
}  // namespace attune
