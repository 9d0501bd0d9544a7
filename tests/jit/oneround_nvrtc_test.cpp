// Configs of the oneround family compile without spills, stack or notes: those that are searched on
// sm_90a, and some small ones on later architectures, of which sm_120 has too little shared memory
// for more.
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/compile_space.h"

namespace attune {
namespace {

class OneRoundCompileTest : public NvrtcTest {
 protected:
  static void expect_clean(const std::vector<Variant>& variants, const char* arch) {
    compile_all(variants, arch, [](const Variant& variant, const Binary& binary) {
      for (const std::string& note : binary.notes) ADD_FAILURE() << note;
      EXPECT_EQ(bytes_in_memory(binary), 0) << variant.text();
    });
  }
};

TEST_F(OneRoundCompileTest, SpillsNothingThatIsSearched) {
  const Family& family = known_family("oneround");
  std::vector<Variant> variants;
  for (const int head_dim : {64, 128, 256, 512}) {
    const auto all = variants_of(family, head_dim, architecture_limits("sm_90a"));
    // Every other config, without softcap or with it in turn.
    for (std::size_t i = 0; i < all.size(); i += 4) variants.push_back(all[i + i / 4 % 2]);
  }
  EXPECT_GE(variants.size(), 20u);
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
