// Every config of the wgrows family compiles for sm_90a without spills, stack or notes: each of them
// is a kernel that computes the right thing several times slower.
#include <gtest/gtest.h>

#include "templates/wgrows_config.h"
#include "tests/support/compile_space.h"

namespace attune {
namespace {

class WgrowsCompileTest : public NvrtcTest {};

TEST_F(WgrowsCompileTest, SpillsNothingAndSerializesNothing) {
  const DeviceInfo device = architecture_limits("sm_90a");
  const std::vector<Variant> all = variants_of(known_family("wgrows"), kWgrowsHeadDim, device);
  ASSERT_GE(all.size(), 24u);
  // Every config, without softcap or with it in turn, to halve the time.
  std::vector<Variant> variants;
  for (std::size_t i = 0; i < all.size(); i += 2) variants.push_back(all[i + i / 2 % 2]);
  compile_all(variants, device.arch, [](const Variant&, const Binary& binary) {
    for (const std::string& note : binary.notes) ADD_FAILURE() << note;
    EXPECT_EQ(bytes_in_memory(binary), 0);
  });
}

}  // namespace
}  // namespace attune
