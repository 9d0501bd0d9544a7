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
  const auto variants = variants_of(known_family("wgrows"), kWgrowsHeadDim, device);
  ASSERT_EQ(variants.size(), 8u);
  compile_all(variants, device.arch, [](const Variant&, const Binary& binary) {
    for (const std::string& note : binary.notes) ADD_FAILURE() << note;
    EXPECT_EQ(bytes_in_memory(binary), 0);
  });
}

}  // namespace
}  // namespace attune
