#include <gtest/gtest.h>

#include "common/error.h"
#include "jit/cuda_query.h"
#include "jit/device_info.h"

namespace attune {
namespace {

TEST(ArchitectureLimits, KnowsThePublishedSharedMemory) {
  EXPECT_EQ(architecture_limits("sm_80").max_smem_per_block_bytes, 166912);
  EXPECT_EQ(architecture_limits("sm_86").max_smem_per_block_bytes, 101376);
  EXPECT_EQ(architecture_limits("sm_89").max_smem_per_block_bytes, 101376);
  EXPECT_EQ(architecture_limits("sm_90a").max_smem_per_block_bytes, 232448);
  EXPECT_EQ(architecture_limits("sm_100a").max_smem_per_block_bytes, 232448);
  EXPECT_EQ(architecture_limits("sm_120").max_smem_per_block_bytes, 101376);
}

TEST(ArchitectureLimits, FillsEveryFieldThatPruningReads) {
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"}) {
    const DeviceInfo info = architecture_limits(arch);
    EXPECT_EQ(info.arch, arch);
    EXPECT_EQ(info.name, std::string(arch) + " (no device)");
    EXPECT_EQ(arch_of(info.compute_major, info.compute_minor), arch);
    EXPECT_GT(info.num_sms, 0);
    EXPECT_GT(info.memory_bytes, 0u);
    EXPECT_GT(info.l2_bytes, 0u);
    EXPECT_EQ(info.registers_per_sm, 65536);
    EXPECT_EQ(info.max_threads_per_block, 1024);
    // An SM keeps 1 KB per block for itself.
    EXPECT_EQ(info.smem_per_sm_bytes, info.max_smem_per_block_bytes + 1024);
    EXPECT_TRUE(info.driver_version.empty());
  }
}

TEST(ArchitectureLimits, NamesTheKnownOnesWhenAskedForAnother) {
  try {
    architecture_limits("sm_75");
    FAIL() << "accepted sm_75";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "unknown architecture: arch='sm_75'; use one of sm_80, sm_86, sm_89, sm_90a, "
                 "sm_100a, sm_120, host");
  }
}

TEST(DeviceInfo, HasAnIdentityOfOneLine) {
  DeviceInfo info = architecture_limits("sm_90a");
  info.name = "NVIDIA H200";
  info.memory_bytes = 150754820096;
  EXPECT_EQ(info.identity(), "NVIDIA H200|sm_90a|9.0|132|150323855360|0");
}

TEST(DeviceInfo, ChangesItsIdentityWithEveryFieldThatCounts) {
  const DeviceInfo base = architecture_limits("sm_90a");
  const auto differs = [&](auto change) {
    DeviceInfo other = base;
    change(&other);
    return other.identity() != base.identity();
  };
  EXPECT_TRUE(differs([](DeviceInfo* info) { info->name = "NVIDIA H100"; }));
  EXPECT_TRUE(differs([](DeviceInfo* info) { info->arch = "sm_90"; }));
  EXPECT_TRUE(differs([](DeviceInfo* info) { info->compute_major = 10; }));
  EXPECT_TRUE(differs([](DeviceInfo* info) { info->compute_minor = 3; }));
  EXPECT_TRUE(differs([](DeviceInfo* info) { info->num_sms = 114; }));
  EXPECT_TRUE(differs([](DeviceInfo* info) { info->memory_bytes /= 2; }));
  EXPECT_TRUE(differs([](DeviceInfo* info) { info->mig = true; }));
  EXPECT_FALSE(differs([](DeviceInfo* info) { info->uuid = "GPU-1"; }));
  EXPECT_FALSE(differs([](DeviceInfo* info) { info->driver_version = "13.1"; }));
}

TEST(ArchOf, AddsTheSuffixOnlyWhereThereAreInstructionsForIt) {
  EXPECT_EQ(arch_of(9, 0), "sm_90a");
  EXPECT_EQ(arch_of(10, 0), "sm_100a");
  EXPECT_EQ(arch_of(12, 0), "sm_120");
  EXPECT_EQ(arch_of(12, 1), "sm_121");
  EXPECT_EQ(arch_of(8, 9), "sm_89");
}

}  // namespace
}  // namespace attune
