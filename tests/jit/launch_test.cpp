#include <array>
#include <cstdint>
#include <cstring>

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
  int overlap;
};

class LaunchTest : public testing::Test {
 protected:
  LaunchTest() {
    device_.on_launch = [this](const Kernel& kernel, const KernelLaunch& shape,
                               const void* params) {
      const auto* attention = static_cast<const AttentionParams*>(params);
      launched_.push_back(
          {FakeDevice::symbol_of(kernel), shape, attention->window, attention->overlap});
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

// The combine waits for the split kernel by itself; the split kernel only where the caller says so.
TEST_F(LaunchTest, StartsTheSplitKernelEarlyWhereTheCallerSaysSo) {
  plan_.combine.programmatic = true;
  const AttentionKernels kernels = load_attention(device_, Binary{}, variant_, plan_);
  for (const int overlap : {0, 1}) {
    launched_.clear();
    params_.overlap = overlap;
    launch_attention(device_, kernels, plan_, params_, nullptr);
    ASSERT_EQ(launched_.size(), 2u);
    EXPECT_EQ(launched_[0].shape.programmatic, overlap == 1);
    EXPECT_TRUE(launched_[1].shape.programmatic);
    EXPECT_EQ(launched_[1].overlap, overlap);
  }
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

// The maps that the split kernel of a problem is launched with: K and V begin at 0x10000 and
// 0x20000, a head's row is 16 elements further than it has to be, and V's 32.
class TensorMapTest : public testing::Test {
 protected:
  struct Maps {
    TensorMapSpec k, v;
    int num_made;
  };

  static Maps maps_of(const char* problem_text, const char* candidate_text, int kv_capacity) {
    const Problem problem = Problem::parse(problem_text);
    const Candidate candidate = Candidate::parse(candidate_text);
    const LaunchPlan plan = plan_launch(problem, candidate);
    AttentionParams params{};
    set_plan_params(problem, plan, 0, &params);
    params.kv_capacity = kv_capacity;
    params.k = reinterpret_cast<const void*>(0x10000);
    params.v = reinterpret_cast<const void*>(0x20000);
    const int rows = problem.page_size > 0 ? problem.page_size : kv_capacity;
    const int columns = kv_row_columns(problem.kv_layout, problem.head_dim);
    params.k_head_stride = columns + 16;
    params.k_token_stride = problem.num_kv_heads * params.k_head_stride;
    params.k_batch_stride = rows * params.k_token_stride;
    params.v_head_stride = columns + 32;
    params.v_token_stride = problem.num_kv_heads * params.v_head_stride;
    params.v_batch_stride = rows * params.v_token_stride;

    FakeDevice device;
    Maps maps{};
    device.on_call = [&](std::string_view call) { maps.num_made += call == "tensor_map"; };
    device.on_launch = [&](const Kernel& kernel, const KernelLaunch&, const void* of) {
      if (FakeDevice::symbol_of(kernel).starts_with("combine")) return;
      const auto* attention = static_cast<const AttentionParams*>(of);
      maps.k = spec_of(attention->k_map);
      maps.v = spec_of(attention->v_map);
    };
    const AttentionKernels kernels =
        load_attention(device, Binary{}, candidate.variant(problem), plan);
    launch_attention(device, kernels, plan, params, nullptr);
    return maps;
  }

 private:
  static TensorMapSpec spec_of(const TensorMap& map) {
    static_assert(sizeof(TensorMapSpec) <= sizeof(TensorMap));
    TensorMapSpec spec;
    std::memcpy(&spec, map.bytes, sizeof(spec));
    return spec;
  }
};

using Sizes = std::array<std::uint64_t, 5>;
using Strides = std::array<std::uint64_t, 4>;
using Box = std::array<std::uint32_t, 5>;
constexpr std::uint64_t kAnyNumber = std::uint64_t{1} << 31;

// Columns of a panel, rows of a sequence, panels of a row, KV heads, sequences.
TEST_F(TensorMapTest, ReachesTheCapacityOfContiguousRows) {
  const Maps maps =
      maps_of("decode/b2/q1/kv1-4096/h8x2/d128/contiguous/bf16", "swapab/m8n16s2w4/x3", 1000);
  EXPECT_EQ(maps.num_made, 2);
  EXPECT_EQ(maps.k.type, TensorMapType::kBf16);
  EXPECT_EQ(maps.k.rank, 5);
  EXPECT_EQ(maps.k.address, 0x10000u);
  EXPECT_EQ(maps.k.size, (Sizes{64, 1000, 2, 2, kAnyNumber}));
  // 2 heads of 128 + 16 numbers: 576 bytes a token, 128 a panel, 288 a head, 576000 a sequence.
  EXPECT_EQ(maps.k.stride_bytes, (Strides{576, 128, 288, 576000}));
  EXPECT_EQ(maps.k.box, (Box{64, 16, 2, 1, 1}));
  EXPECT_EQ(maps.k.swizzle, TensorMapSwizzle::k128);
  EXPECT_EQ(maps.k.fill, TensorMapFill::kZero);
  EXPECT_EQ(maps.v.address, 0x20000u);
  EXPECT_EQ(maps.v.size, maps.k.size);
  EXPECT_EQ(maps.v.stride_bytes, (Strides{640, 128, 320, 640000}));
  EXPECT_EQ(maps.v.box, maps.k.box);
}

TEST_F(TensorMapTest, ReachesTheEndOfARing) {
  const Maps maps =
      maps_of("verify/b2/q4/kv1-4096/h8x2/d256/w1024/ring/bf16", "swapab/m16n32s1w4/x4", 1040);
  EXPECT_EQ(maps.k.size, (Sizes{64, 1040, 4, 2, kAnyNumber}));
  EXPECT_EQ(maps.k.stride_bytes, (Strides{1088, 128, 544, 1088 * 1040}));
  EXPECT_EQ(maps.k.box, (Box{64, 32, 4, 1, 1}));
}

// Whatever the capacity is, a box lies in one page.
TEST_F(TensorMapTest, ReachesTheEndOfAPage) {
  const Maps maps =
      maps_of("decode/b2/q1/kv1-4096/h8x2/d512/p64/paged/bf16", "swapab/m8n16s1w4/x3", 4096);
  EXPECT_EQ(maps.k.size, (Sizes{64, 64, 8, 2, kAnyNumber}));
  EXPECT_EQ(maps.k.stride_bytes, (Strides{2112, 128, 1056, 2112 * 64}));
  EXPECT_EQ(maps.k.box, (Box{64, 16, 8, 1, 1}));
  EXPECT_EQ(maps.v.size, maps.k.size);
  EXPECT_EQ(maps.v.stride_bytes, (Strides{2176, 128, 1088, 2176 * 64}));
}

// Ten panels of 64 columns, and none of V's own.
TEST_F(TensorMapTest, UnifiedRowsHaveOne) {
  const Maps maps =
      maps_of("decode/b2/q1/kv1-4096/h16x2/d512/unified/bf16", "swapab/m8n16s2w4/x3", 512);
  EXPECT_EQ(maps.num_made, 1);
  EXPECT_EQ(maps.k.size, (Sizes{64, 512, 10, 2, kAnyNumber}));
  EXPECT_EQ(maps.k.stride_bytes, (Strides{2624, 128, 1312, 2624 * 512}));
  EXPECT_EQ(maps.k.box, (Box{64, 16, 10, 1, 1}));
  EXPECT_EQ(maps.v.address, 0u);
}

// Its boxes are the parts of a tile that arrive and are freed together.
TEST_F(TensorMapTest, WgmmaTakesRowsInParts) {
  const Maps separate =
      maps_of("verify/b1/q8/kv1-4096/h8x1/d512/contiguous/bf16", "wgmma/m64n64s1w12/x3", 512);
  EXPECT_EQ(separate.k.size, (Sizes{64, 512, 8, 1, kAnyNumber}));
  EXPECT_EQ(separate.k.box, (Box{64, 64, 4, 1, 1}));
  EXPECT_EQ(separate.v.box, separate.k.box);
  const Maps unified = maps_of("verify/b1/q8/kv1-4096/h8x1/d512/p128/unified-paged/bf16",
                               "wgmma/m64n32s2w12/x3", 512);
  EXPECT_EQ(unified.num_made, 1);
  EXPECT_EQ(unified.k.size, (Sizes{64, 128, 10, 1, kAnyNumber}));
  EXPECT_EQ(unified.k.box, (Box{64, 32, 2, 1, 1}));
}

TEST_F(TensorMapTest, NoneIsMadeWhereNobodyReadsIt) {
  EXPECT_EQ(maps_of("decode/b2/q1/kv1-4096/h8x2/d128/contiguous/bf16", "splitkv/m16n64s1w8/x3", 512)
                .num_made,
            0);
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
