#include "jit/host/host_target.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "common/error.h"
#include "jit/compiler.h"
#include "jit/device_info.h"
#include "templates/host/abi.h"

namespace attune {
namespace {

constexpr const char* kTargets[] = {"host",       "host+checks",       "host+sanitizers",
                                    "host+debug", "host+checks+debug", "host+sanitizers+debug"};

bool has(const std::vector<std::string>& options, std::string_view option) {
  return std::find(options.begin(), options.end(), option) != options.end();
}

TEST(HostTarget, HasATextAndIsReadFromIt) {
  for (const char* text : kTargets) EXPECT_EQ(HostTarget::parse(text).text(), text);
  EXPECT_EQ(HostTarget::parse("host"), HostTarget());
  EXPECT_EQ(HostTarget::parse("host+checks+debug"),
            (HostTarget{.checks = HostChecks::kAccesses, .debug = true}));
  EXPECT_EQ(HostTarget::parse("host+sanitizers"),
            (HostTarget{.checks = HostChecks::kSanitizers, .debug = false}));
}

TEST(HostTarget, RefusesOtherTexts) {
  for (const char* text : {"", "sm_90a", "hosts", "host+", "host+debug+checks", "host+check",
                           "host+checks+checks", "host+checks+", "HOST"}) {
    EXPECT_THROW(HostTarget::parse(text), InvalidArgument) << text;
  }
}

TEST(HostTarget, IsToldFromAGpuEvenWhenMisspelt) {
  for (const char* text : kTargets) EXPECT_TRUE(is_host_arch(text)) << text;
  EXPECT_TRUE(is_host_arch("host+nosuch"));
  for (const char* text : {"", "sm_90a", "hosts", "host-checks"}) {
    EXPECT_FALSE(is_host_arch(text)) << text;
  }
}

TEST(HostOptions, AreTheSameEveryTimeAndNameTheInterface) {
  for (const char* text : kTargets) {
    const std::string options = compile_options(text);
    EXPECT_EQ(options, compile_options(text));
    EXPECT_TRUE(options.starts_with("-std=c++20 ")) << options;
    EXPECT_TRUE(options.ends_with("-DATTUNE_HOST=" + std::to_string(host::kAbiVersion))) << options;
    EXPECT_EQ(options.find('/'), std::string::npos) << "a path: " << options;
  }
}

TEST(HostOptions, DifferForEveryTarget) {
  for (const char* a : kTargets) {
    for (const char* b : kTargets) {
      EXPECT_EQ(compile_options(a) == compile_options(b), a == b) << a << ' ' << b;
    }
  }
}

TEST(HostOptions, FollowTheTarget) {
  EXPECT_TRUE(has(host_options({}), "-O2"));
  EXPECT_TRUE(has(host_options({.debug = true}), "-O0"));
  EXPECT_TRUE(has(host_options({.debug = true}), "-g3"));
  EXPECT_TRUE(has(host_options({.checks = HostChecks::kAccesses}), "-fsanitize=thread"));
  EXPECT_TRUE(
      has(host_options({.checks = HostChecks::kSanitizers}), "-fsanitize=address,undefined"));
  for (const char* text : kTargets) {
    EXPECT_TRUE(has(host_options(HostTarget::parse(text)), "-ffp-contract=off")) << text;
  }
}

TEST(HostOptions, OfAMisspeltTargetAreRefused) {
  EXPECT_THROW(compile_options("host+nosuch"), InvalidArgument);
}

TEST(ArchitectureLimits, OfTheHostAreThoseOfAnSm90a) {
  const DeviceInfo gpu = architecture_limits("sm_90a");
  for (const char* text : kTargets) {
    const DeviceInfo info = architecture_limits(text);
    EXPECT_EQ(info.arch, text);
    EXPECT_EQ(info.name, std::string(text) + " (no device)");
    EXPECT_EQ(info.compute_capability(), 90);
    EXPECT_EQ(info.max_smem_per_block_bytes, gpu.max_smem_per_block_bytes);
    EXPECT_EQ(info.smem_per_sm_bytes, gpu.smem_per_sm_bytes);
    EXPECT_EQ(info.registers_per_sm, gpu.registers_per_sm);
    EXPECT_EQ(info.max_threads_per_block, gpu.max_threads_per_block);
    EXPECT_EQ(info.l2_bytes, std::size_t{4} << 20);
    EXPECT_GT(info.num_sms, 0);
    EXPECT_GT(info.memory_bytes, 0u);
  }
  EXPECT_THROW(architecture_limits("host+nosuch"), InvalidArgument);
}

}  // namespace
}  // namespace attune
