// The corners of every family's config space compile for every architecture that attune names.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "jit/compile_pool.h"
#include "jit/device_info.h"
#include "templates/wgrows_config.h"
#include "tests/support/config_corners.h"
#include "tests/support/require_nvrtc.h"

namespace attune {
namespace {

constexpr int kHeadDims[] = {64, 128, 256, 512};
// Whether the accumulators and scores leave two thirds of a thread's registers to the rest. Where
// they do not, a spill is the tuner's to reject.
bool is_roomy(const KernelConfig& config, int head_dim, const DeviceInfo& device) {
  const int registers = std::min(255, device.registers_per_sm / (config.num_warps * kWarpSize));
  const int scores = config.block_m * config.block_n / (config.num_warps * kWarpSize);
  return 3 * (accumulators_of(config, head_dim) + scores) <= registers;
}

class CornerTest : public NvrtcTest, public testing::WithParamInterface<const char*> {};

TEST_P(CornerTest, CompilesTheCornersOfEveryFamily) {
  const DeviceInfo device = architecture_limits(GetParam());
  std::vector<CompileJob> jobs;
  std::vector<Variant> variants;
  for (const Family& family : families_of(Op::kDecode)) {
    if (device.compute_capability() < family.min_compute_capability) continue;
    if (!family.only_arch.empty() && family.only_arch != device.arch) continue;
    // Its defaults are in layout_corner_test.cpp, on all of them.
    if (family.has_slices && device.arch != "sm_80") continue;
    for (const int head_dim : kHeadDims) {
      // Made for one head_dim.
      if (family.has_slices && head_dim != kUnifiedHeadDim) continue;
      if (family.name == "wgmma" && head_dim != kWgmmaHeadDim) continue;
      if (family.name == "wgrows" && head_dim != kWgrowsHeadDim) continue;
      const std::set<KernelConfig> configs =
          config_corners(family, head_dim, KvLayout::kContiguous, device);
      // What it needs in flight is all the shared memory that sm_120 has.
      const bool has_room =
          device.arch != "sm_120" ||
          (family.name != "oneround" && (family.name != "swapab" || head_dim < 256));
      EXPECT_EQ(configs.empty(), !has_room) << family.name << " head_dim " << head_dim;
      // All of what is served today and has no test of its own, every second one else.
      const bool has_own_test = family.num_streams != nullptr || !family.only_arch.empty();
      const bool all = device.arch == "sm_90a" && !has_own_test;
      bool is_tried = false;
      for (const KernelConfig& config : configs) {
        is_tried = all || !is_tried;
        if (!is_tried) continue;
        // Both layouts, as far as the family has them, with and without softcap, in turn.
        const bool odd = variants.size() % 2 == 1;
        const bool ring = odd && !family.static_limits(config, head_dim, KvLayout::kRing);
        variants.push_back({std::string(family.name), head_dim,
                            ring ? KvLayout::kRing : KvLayout::kContiguous, odd, false,
                            DataType::kBf16, config});
        jobs.push_back({variants.size() - 1, attention_source(variants.back()), device.arch});
      }
    }
  }
  CompilePoolOptions options;
  options.compilers.nvrtc = test_nvrtc_search();
  CompilePool pool(options);
  const std::size_t done = pool.run(jobs, [&](const CompileOutcome& outcome) {
    const Variant& variant = variants[outcome.id];
    SCOPED_TRACE(variant.text() + " " + device.arch);
    ASSERT_TRUE(outcome.binary) << outcome.error << outcome.log;
    EXPECT_EQ(outcome.binary->kernels.size(), known_family(variant.family).splits_keys ? 2u : 1u);
    for (const std::string& note : outcome.binary->notes) EXPECT_FALSE(is_fatal_note(note)) << note;
    if (!is_roomy(variant.config, variant.head_dim, device)) return;
    // Of the little that has room on sm_120, ptxas puts 8 bytes on the stack: the tuner's to reject.
    if (variant.family == "swapab" && device.arch == "sm_120") return;
    // Nor are 96 registers enough, which it gives eight warps at head_dim 64 for two CTAs on an SM.
    if (variant.family == "swapab" && variant.head_dim == 64 && variant.config.num_warps == 8)
      return;
    for (const KernelResources& kernel : outcome.binary->kernels) {
      EXPECT_EQ(kernel.spill_store_bytes + kernel.spill_load_bytes, 0) << kernel.symbol;
      EXPECT_EQ(kernel.stack_bytes, 0) << kernel.symbol;
    }
  });
  EXPECT_EQ(done, jobs.size());
}

// What prefills are done with first, one of them on every architecture: 128 accumulators a thread.
constexpr const char* kPrefillVariants[] = {
    "tiled/d512/contiguous/bf16/m64n64s1w8",
    "tiled/d512/paged/bf16/m64n64s1w8",
    "tiled/d512/unified/bf16/m64n64s2w8",
    "tiled/d512/unified-paged/bf16/m64n64s2w8",
    "tiled/d512/unified-paged/bf16/softcap/m64n32s2w8",
    "tiled/d512/contiguous/bf16/softcap/m64n32s1w8",
    "tiled/d512/paged/bf16/m32n32s1w4",
    "tiled/d256/ring/bf16/m128n64s2w8",
    "tiled/d256/ring/bf16/m128n64s1w8",
    "tiled/d256/paged/bf16/softcap/m128n64s1w8",
    "tiled/d256/ring/bf16/m64n64s1w4",
    "tiled/d256/contiguous/bf16/softcap/m64n64s1w4",
    "tiled/d128/ring/bf16/m128n64s2w8",
};

TEST_P(CornerTest, KeepsTheAccumulatorsOfPrefillsInRegisters) {
  const DeviceInfo device = architecture_limits(GetParam());
  std::vector<CompileJob> jobs;
  std::vector<Variant> variants;
  for (const char* const text : kPrefillVariants) {
    const Variant variant = Variant::parse(text);
    const int smem_bytes = known_family(variant.family)
                               .smem_bytes(variant.config, variant.head_dim, variant.kv_layout);
    if (smem_bytes > device.max_smem_per_block_bytes) continue;
    // A few registers too many there: the tuner's to reject.
    const bool is_widest = is_unified(variant.kv_layout) && variant.config.block_n == 64;
    if (is_widest && device.arch == "sm_100a") continue;
    jobs.push_back({variants.size(), attention_source(variant), device.arch});
    variants.push_back(variant);
  }
  CompilePoolOptions options;
  options.compilers.nvrtc = test_nvrtc_search();
  CompilePool pool(options);
  const std::size_t done = pool.run(jobs, [&](const CompileOutcome& outcome) {
    SCOPED_TRACE(variants[outcome.id].text() + " " + device.arch);
    ASSERT_TRUE(outcome.binary) << outcome.error << outcome.log;
    for (const std::string& note : outcome.binary->notes) EXPECT_FALSE(is_fatal_note(note)) << note;
    const KernelResources& kernel = outcome.binary->kernels.front();
    EXPECT_EQ(kernel.spill_store_bytes + kernel.spill_load_bytes + kernel.stack_bytes, 0);
    RecordProperty(variants[outcome.id].text(), kernel.registers);
  });
  EXPECT_EQ(done, jobs.size());
  EXPECT_GE(done, 3u);
}

INSTANTIATE_TEST_SUITE_P(All, CornerTest,
                         // sm_86 and sm_89 have the shared memory of sm_120.
                         testing::Values("sm_80", "sm_90a", "sm_100a", "sm_120"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace attune
