// Default kernels of the Gemma 4 problems in every layout, invariant too, compile for the
// architectures that attune names: without spills, without a stack frame.
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/compile_space.h"
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

void expect_no_spills(const std::vector<Variant>& variants, const std::string& arch) {
  compile_all(variants, arch, [&](const Variant& variant, const Binary& binary) {
    for (const std::string& note : binary.notes) EXPECT_FALSE(is_fatal_note(note)) << note;
    EXPECT_EQ(bytes_in_memory(binary), 0);
    std::string registers;
    for (const KernelResources& kernel : binary.kernels) {
      registers += fmt::format(" {}", kernel.registers);
    }
    std::printf("%s %s registers:%s\n", arch.c_str(), variant.text().c_str(), registers.c_str());
  });
}

// All of them, or every second one.
std::vector<Variant> sample(const std::set<Variant>& found, bool all, bool is_tried = false) {
  std::vector<Variant> variants;
  for (const Variant& variant : found) {
    is_tried = all || !is_tried;
    if (is_tried) variants.push_back(variant);
  }
  return variants;
}

TEST_P(LayoutCornerTest, CompilesTheDefaultsOfGemma4WithoutSpills) {
  const DeviceInfo device = architecture_limits(GetParam());
  // All of what is served today.
  expect_no_spills(sample(default_variants(device), device.arch == "sm_90a"), device.arch);
}

INSTANTIATE_TEST_SUITE_P(All, LayoutCornerTest,
                         testing::Values("sm_80", "sm_90a", "sm_100a", "sm_120"),
                         [](const auto& instance) { return std::string(instance.param); });

// Those of prefills where mma.sync computes them; on Hopper they are in the tests of their families.
class PrefillCornerTest : public NvrtcTest, public testing::WithParamInterface<const char*> {};

TEST_P(PrefillCornerTest, CompilesTheDefaultsOfGemma4WithoutSpills) {
  const DeviceInfo device = architecture_limits(GetParam());
  std::set<Variant> found;
  const auto add = [&](const std::string& shape) {
    const Problem problem =
        Problem::parse(fmt::format("prefill/b1/q2048/kv1-131072/{}/bf16", shape));
    found.insert(default_candidate(problem, device).variant(problem));
  };
  for (const char* layout : kGlobalLayouts) add(fmt::format("h32x4/d512/{}", layout));
  for (const char* layout : kSlidingLayouts) add(fmt::format("h32x16/d256/w1024/{}", layout));
  EXPECT_EQ(found.size(), 7u);
  const bool all = device.arch == "sm_89", others_first = device.compute_major >= 10;
  expect_no_spills(sample(found, all, others_first), device.arch);
}

INSTANTIATE_TEST_SUITE_P(All, PrefillCornerTest,
                         testing::Values("sm_80", "sm_89", "sm_100a", "sm_120"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace attune
