// Configs of the oneround family compile without spills, stack or notes: a sample of those that are
// searched on sm_90a, and some small ones on later architectures; sm_120 has too little shared
// memory for more.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/compile_space.h"

namespace attune {
namespace {

class OneRoundCompileTest : public NvrtcTest {
 protected:
  static void expect_clean(const std::vector<Variant>& variants, const std::string& arch) {
    // ptxas calls a function for a bulk copy there, with 8 bytes on the stack (`swapab` has them too).
    const int most_stack_bytes = arch == "sm_120" ? 8 : 0;
    compile_all(variants, arch, [&](const Variant& variant, const Binary& binary) {
      for (const std::string& note : binary.notes) ADD_FAILURE() << note;
      for (const KernelResources& kernel : binary.kernels) {
        EXPECT_EQ(kernel.spill_store_bytes + kernel.spill_load_bytes, 0) << variant.text();
        EXPECT_LE(kernel.stack_bytes, most_stack_bytes) << variant.text();
      }
    });
  }
};

TEST_F(OneRoundCompileTest, SpillsNothingThatIsSearched) {
  const Family& family = known_family("oneround");
  std::vector<Variant> variants;
  for (const int head_dim : {64, 128, 256, 512}) {
    const auto all = variants_of(family, head_dim, architecture_limits("sm_90a"));
    // Every fourth config, without softcap or with it in turn: all of them take minutes.
    for (std::size_t i = 0; i < all.size(); i += 8) variants.push_back(all[i + i / 8 % 2]);
  }
  EXPECT_GE(variants.size(), 8u);
  expect_clean(variants, "sm_90a");
}

TEST_F(OneRoundCompileTest, SpillsNothingOnLaterArchitectures) {
  for (const char* arch : {"sm_100a", "sm_120"}) {
    std::vector<Variant> variants;
    for (const char* text :
         {"oneround/d256/ring/bf16/m8n16s1w4", "oneround/d128/contiguous/bf16/softcap/m16n16s1w8",
          "oneround/d512/unified/bf16/m8n16s1w4"}) {
      const Variant variant = Variant::parse(text);
      const int smem_bytes =
          oneround_smem_bytes(variant.config, variant.head_dim, variant.kv_layout);
      ASSERT_LE(smem_bytes, architecture_limits(arch).max_smem_per_block_bytes) << text;
      variants.push_back(variant);
    }
    expect_clean(variants, arch);
  }
}

}  // namespace
}  // namespace attune
