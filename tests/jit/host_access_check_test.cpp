#include "jit/host/access_check.h"

#include <array>

#include <gtest/gtest.h>

namespace attune::host {
namespace {

constexpr std::array<AddressRange, 2> kReadOnly = {{{0x300000, 0x300050}, {0x310000, 0x311000}}};
constexpr AddressRange kStack{0x400000, 0x404000};
constexpr std::uintptr_t kGlobal = 0x10000;

class AccessCheckTest : public testing::Test {
 protected:
  AccessCheckTest() { map.add(reinterpret_cast<const void*>(kGlobal), 4096); }

  std::optional<FaultKind> check(std::uintptr_t address, std::size_t bytes, bool is_write = false) {
    return check_access(scope, view, reinterpret_cast<const void*>(address), bytes, is_write);
  }
  std::string details(std::uintptr_t address, std::size_t bytes, bool is_write = false) {
    const auto* at = reinterpret_cast<const void*>(address);
    const auto refused = check(address, bytes, is_write);
    EXPECT_TRUE(refused);
    return access_fault(*refused, map, at, bytes, is_write, nullptr).details;
  }

  MemoryMap map;
  MemoryView view{map};
  AccessScope scope{kStack, kReadOnly};
};

TEST_F(AccessCheckTest, AdmitsWhatIsTheThreads) {
  EXPECT_FALSE(check(kGlobal + 4080, 16));
  EXPECT_FALSE(check(0x400100, 8, true));
  EXPECT_FALSE(check(0x400101, 8, true));  // its own variables lie as the compiler likes
  EXPECT_FALSE(check(0x300000, 8));
}

TEST_F(AccessCheckTest, RequiresTheWholeRangeInOneAllocation) {
  EXPECT_FALSE(check(kGlobal, 4096));
  EXPECT_EQ(check(kGlobal, 4097), FaultKind::kOutOfRange);
  EXPECT_EQ(check(kGlobal + 4096, 1), FaultKind::kOutOfRange);
  EXPECT_EQ(check(kGlobal - 4, 8), FaultKind::kOutOfRange);
  EXPECT_EQ(details(kGlobal + 4096 + 32, 16),
            "read of 16 bytes at 32 bytes past the end of allocation 1 (4096 bytes)");
}

TEST_F(AccessCheckTest, RequiresNaturalAlignment) {
  for (const std::size_t bytes : {2u, 4u, 8u, 16u}) {
    EXPECT_FALSE(check(kGlobal + bytes, bytes));
    EXPECT_EQ(check(kGlobal + bytes / 2, bytes), FaultKind::kMisaligned);
  }
  EXPECT_FALSE(check(kGlobal + 1, 1));
  EXPECT_FALSE(check(kGlobal + 1, 24));  // a block, not an instruction
  EXPECT_EQ(details(kGlobal + 2, 4), "read of 4 bytes at byte 2 of allocation 1 (4096 bytes)");
}

TEST_F(AccessCheckTest, LetsParametersAndConstantsBeReadOnly) {
  EXPECT_FALSE(check(0x300040, 16));
  EXPECT_EQ(check(0x300040, 16, true), FaultKind::kReadOnly);
  EXPECT_EQ(check(0x300050, 4), FaultKind::kOutOfRange);
  EXPECT_EQ(check(0x310900, 16, true), FaultKind::kReadOnly);
}

TEST_F(AccessCheckTest, RefusesAddressesThatWrapAround) {
  EXPECT_EQ(check(~std::uintptr_t{0} - 3, 8), FaultKind::kOutOfRange);
  EXPECT_EQ(check(kGlobal + 8, ~std::size_t{0}), FaultKind::kOutOfRange);
}

TEST_F(AccessCheckTest, RefusesFreedMemory) {
  map.remove(reinterpret_cast<const void*>(kGlobal));
  EXPECT_EQ(details(kGlobal + 16, 4, true),
            "write of 4 bytes at byte 16 of allocation 1 (4096 bytes), which is freed");
}

TEST(FaultText, NamesKernelBlockAndThread) {
  const Fault fault{FaultKind::kOutOfRange,
                    "read of 16 bytes at ...",
                    nullptr,
                    "splitkv_d512_m16n32s1w8",
                    {3, 0, 1},
                    {37, 0, 0}};
  EXPECT_EQ(to_text(fault),
            "access out of range: kernel=splitkv_d512_m16n32s1w8 block=(3,0,1) thread=(37,0,0) "
            "read of 16 bytes at ...");
}

}  // namespace
}  // namespace attune::host
