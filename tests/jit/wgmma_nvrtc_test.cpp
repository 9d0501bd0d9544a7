// Every config of the wgmma family compiles for sm_90a without spills, stack or notes: each of them
// is a kernel that computes the right thing several times slower.
#include <gtest/gtest.h>

#include "tests/support/compile_space.h"

namespace attune {
namespace {

class WgmmaCompileTest : public NvrtcTest {};

TEST_F(WgmmaCompileTest, SpillsNothingAndSerializesNothing) {
  const DeviceInfo device = architecture_limits("sm_90a");
  const std::vector<Variant> variants = variants_of(known_family("wgmma"), kWgmmaHeadDim, device);
  EXPECT_GE(variants.size(), 24u);
  compile_all(variants, device.arch, [](const Variant&, const Binary& binary) {
    for (const std::string& note : binary.notes) ADD_FAILURE() << note;
    EXPECT_EQ(bytes_in_memory(binary), 0);
  });
}

}  // namespace
}  // namespace attune
