// A sample of the configs of the swapab family compiles, and all but a few of it without spills,
// stack or notes: those are the tuner's to reject. Corners on all architectures: corner_test.cpp.
#include <cstddef>
#include <cstdio>
#include <ostream>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/compile_space.h"

namespace attune {
namespace {

struct SwapAbSpace {
  const char* arch;
  int least;           // variants that shared memory has room for
  int most_in_memory;  // of them
};
void PrintTo(const SwapAbSpace& space, std::ostream* out) { *out << space.arch; }

class SwapAbCompileTest : public NvrtcTest, public testing::WithParamInterface<SwapAbSpace> {};

TEST_P(SwapAbCompileTest, SpillsNextToNothing) {
  const Family& family = known_family("swapab");
  const DeviceInfo device = architecture_limits(GetParam().arch);
  ASSERT_GE(device.compute_capability(), family.min_compute_capability);
  std::vector<Variant> variants;
  for (const int head_dim : {64, 128, 256, 512}) {
    const std::vector<Variant> all = variants_of(family, head_dim, device);
    // Every fourth config, without softcap or with it in turn: all of them take minutes.
    for (std::size_t i = 0; i < all.size(); i += 8) variants.push_back(all[i + i / 8 % 2]);
  }
  EXPECT_GE(static_cast<int>(variants.size()), GetParam().least);
  int num_rejected = 0;
  compile_all(variants, device.arch, [&](const Variant& variant, const Binary& binary) {
    for (const std::string& note : binary.notes) ADD_FAILURE() << note;
    if (bytes_in_memory(binary) == 0) return;
    ++num_rejected;
    std::printf("%s %s: %d bytes of registers in memory\n", device.arch.c_str(),
                variant.text().c_str(), bytes_in_memory(binary));
  });
  EXPECT_LE(num_rejected, GetParam().most_in_memory);
}

INSTANTIATE_TEST_SUITE_P(All, SwapAbCompileTest,
                         testing::Values(SwapAbSpace{"sm_90a", 37, 2}, SwapAbSpace{"sm_120", 1, 8}),
                         [](const auto& instance) { return std::string(instance.param.arch); });

}  // namespace
}  // namespace attune
