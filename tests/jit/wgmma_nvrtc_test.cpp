// Every config of the wgmma family compiles for sm_90a without spills, stack or notes: each of them
// is a kernel that computes the right thing several times slower.
#include <gtest/gtest.h>

#include "jit/compile_pool.h"
#include "jit/device_info.h"
#include "tests/support/require_nvrtc.h"

namespace attune {
namespace {

class WgmmaCompileTest : public NvrtcTest {};

TEST_F(WgmmaCompileTest, SpillsNothingAndSerializesNothing) {
  const Family& family = known_family("wgmma");
  const DeviceInfo device = architecture_limits("sm_90a");
  std::vector<CompileJob> jobs;
  std::vector<Variant> variants;
  for (const KvLayout layout : kKvLayouts) {
    for (const KernelConfig& config : family.configs(kWgmmaHeadDim, layout)) {
      if (family.smem_bytes(config, kWgmmaHeadDim, layout) > device.max_smem_per_block_bytes) {
        continue;
      }
      for (const bool softcap : {false, true}) {
        variants.push_back({std::string(family.name), kWgmmaHeadDim, layout, softcap, false,
                            DataType::kBf16, config});
        jobs.push_back({variants.size() - 1, attention_source(variants.back()), device.arch});
      }
    }
  }
  EXPECT_GE(jobs.size(), 24u);
  CompilePoolOptions options;
  options.compilers.nvrtc = test_nvrtc_search();
  CompilePool pool(options);
  const std::size_t done = pool.run(jobs, [&](const CompileOutcome& outcome) {
    SCOPED_TRACE(variants[outcome.id].text());
    ASSERT_TRUE(outcome.binary) << outcome.error << outcome.log;
    for (const std::string& note : outcome.binary->notes) ADD_FAILURE() << note;
    for (const KernelResources& kernel : outcome.binary->kernels) {
      EXPECT_EQ(kernel.spill_store_bytes + kernel.spill_load_bytes, 0) << kernel.symbol;
      EXPECT_EQ(kernel.stack_bytes, 0) << kernel.symbol;
    }
  });
  EXPECT_EQ(done, jobs.size());
}

}  // namespace
}  // namespace attune
