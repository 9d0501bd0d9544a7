// Default kernels of the Gemma 4 problems in every layout, invariant too, compile for the
// architectures that attune names: without spills, without a stack frame.
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "jit/compile_pool.h"
#include "tests/support/require_nvrtc.h"
#include "tuner/space.h"

namespace attune {
namespace {

constexpr const char* kHeads[] = {"h32x4", "h16x1"};
constexpr const char* kGlobalLayouts[] = {"contiguous", "p64/paged", "unified",
                                          "p64/unified-paged"};
constexpr const char* kSlidingLayouts[] = {"ring", "contiguous", "p64/paged"};

// Variants of the default candidates of the global and sliding layers, as decode and as verify.
std::set<Variant> default_variants(const DeviceInfo& device) {
  std::set<Variant> variants;
  const auto add = [&](const std::string& text) {
    const Problem problem = Problem::parse(text);
    variants.insert(default_candidate(problem, device).variant(problem));
  };
  for (const char* invariant : {"", "/invariant"}) {
    for (const char* tokens : {"decode/b1/q1", "verify/b1/q4", "verify/b1/q16"}) {
      for (const char* layout : kGlobalLayouts) {
        for (const char* heads : kHeads) {
          add(fmt::format("{}/kv1-131072/{}/d512{}/{}/bf16", tokens, heads, invariant, layout));
        }
      }
      for (const char* layout : kSlidingLayouts) {
        add(fmt::format("{}/kv1-131072/h32x16/d256/w1024{}/{}/bf16", tokens, invariant, layout));
      }
    }
  }
  return variants;
}

class LayoutCornerTest : public NvrtcTest, public testing::WithParamInterface<const char*> {};

TEST_P(LayoutCornerTest, CompilesTheDefaultsOfGemma4WithoutSpills) {
  const DeviceInfo device = architecture_limits(GetParam());
  const std::set<Variant> found = default_variants(device);
  std::vector<Variant> variants;
  // All of what is served today, every second one elsewhere.
  bool is_tried = false;
  for (const Variant& variant : found) {
    is_tried = device.arch == "sm_90a" || !is_tried;
    if (is_tried) variants.push_back(variant);
  }
  std::vector<CompileJob> jobs;
  for (const Variant& variant : variants) {
    jobs.push_back({jobs.size(), attention_source(variant), device.arch});
  }
  CompilePoolOptions options;
  options.compilers.nvrtc = test_nvrtc_search();
  CompilePool pool(options);
  const std::size_t done = pool.run(jobs, [&](const CompileOutcome& outcome) {
    SCOPED_TRACE(variants[outcome.id].text() + " " + device.arch);
    ASSERT_TRUE(outcome.binary) << outcome.error << outcome.log;
    for (const std::string& note : outcome.binary->notes) EXPECT_FALSE(is_fatal_note(note)) << note;
    std::string registers;
    for (const KernelResources& kernel : outcome.binary->kernels) {
      EXPECT_EQ(kernel.spill_store_bytes + kernel.spill_load_bytes, 0) << kernel.symbol;
      EXPECT_EQ(kernel.stack_bytes, 0) << kernel.symbol;
      registers += fmt::format(" {}", kernel.registers);
    }
    std::printf("%s %s registers:%s\n", GetParam(), variants[outcome.id].text().c_str(),
                registers.c_str());
  });
  EXPECT_EQ(done, jobs.size());
}

INSTANTIATE_TEST_SUITE_P(All, LayoutCornerTest,
                         testing::Values("sm_80", "sm_90a", "sm_100a", "sm_120"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace attune
