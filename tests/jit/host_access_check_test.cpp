#include "jit/host/access_check.h"

#include <array>

#include <gtest/gtest.h>

namespace attune::host {
namespace {

// Two windows of a cluster: 1024 bytes nobody's, 512 static, 4000 dynamic.
constexpr std::array<SharedWindow, 2> kWindows = {
    {{0x100000, 0x8000, 1024, 1536, 2048, 6048}, {0x200000, 0x8000, 1024, 1536, 2048, 6048}}};
constexpr std::array<AddressRange, 2> kReadOnly = {{{0x300000, 0x300050}, {0x310000, 0x311000}}};
constexpr std::array<AddressRange, 1> kReadWrite = {{{0x310800, 0x310900}}};
constexpr AddressRange kStack{0x400000, 0x404000};
constexpr std::uintptr_t kGlobal = 0x10000;

class AccessCheckTest : public testing::Test {
 protected:
  AccessCheckTest() { map.add(reinterpret_cast<const void*>(kGlobal), 4096); }

  AccessCheck check(std::uintptr_t address, std::size_t bytes, bool is_write = false) {
    return check_access(scope, view, reinterpret_cast<const void*>(address), bytes, is_write);
  }
  std::string details(std::uintptr_t address, std::size_t bytes, bool is_write = false) {
    const auto* at = reinterpret_cast<const void*>(address);
    const AccessCheck refused = check(address, bytes, is_write);
    EXPECT_TRUE(refused.fault);
    return access_fault(scope, map, refused, at, bytes, is_write, nullptr).details;
  }

  MemoryMap map;
  MemoryView view{map};
  AccessScope scope{kWindows, kStack, kReadOnly, kReadWrite};
};

TEST_F(AccessCheckTest, TellsSpacesApart) {
  EXPECT_EQ(check(kGlobal + 4080, 16).space, MemorySpace::kGlobal);
  EXPECT_EQ(check(0x400100, 8, true).space, MemorySpace::kStack);
  EXPECT_EQ(check(0x300000, 8).space, MemorySpace::kModule);
  const AccessCheck shared = check(0x200000 + 2052, 4, true);
  EXPECT_EQ(shared.space, MemorySpace::kShared);
  EXPECT_EQ(shared.cluster_rank, 1u);
  EXPECT_EQ(shared.offset, 2052u);
  for (const AccessCheck& one :
       {check(kGlobal + 4080, 16), check(0x400100, 8, true), check(0x300000, 8), shared}) {
    EXPECT_FALSE(one.fault);
  }
}

TEST_F(AccessCheckTest, EndsSharedMemoryExactlyWhereTheLaunchSays) {
  EXPECT_FALSE(check(0x100000 + 1024, 16).fault);
  EXPECT_FALSE(check(0x100000 + 1520, 16).fault);
  EXPECT_FALSE(check(0x100000 + 6032, 16).fault);
  EXPECT_FALSE(check(0x100000 + 2048, 4000).fault);  // a block
  for (const std::uint32_t offset : {0u, 1008u, 1536u, 2032u, 6048u, 0x7ff0u}) {
    const AccessCheck refused = check(0x100000 + offset, 16, true);
    EXPECT_EQ(refused.fault, FaultKind::kOutOfRange) << offset;
    EXPECT_EQ(refused.space, MemorySpace::kShared) << offset;
  }
  EXPECT_EQ(check(0x100000 + 2048, 4001).fault, FaultKind::kOutOfRange);
}

TEST_F(AccessCheckTest, DescribesSharedOffsets) {
  EXPECT_EQ(details(0x100000 + 6048, 4, true),
            "write of 4 bytes at 0 bytes past the end of dynamic shared memory (4000 bytes)");
  EXPECT_EQ(details(0x100000 + 6064, 16),
            "read of 16 bytes at 16 bytes past the end of dynamic shared memory (4000 bytes)");
  EXPECT_EQ(details(0x100000 + 6040, 32),
            "read of 32 bytes at dynamic shared memory offset 3992, 24 bytes past its end (4000 "
            "bytes)");
  EXPECT_EQ(details(0x100000 + 2040, 4),
            "read of 4 bytes at shared memory window offset 2040, 8 bytes in front of dynamic "
            "shared memory");
}

TEST_F(AccessCheckTest, RequiresTheWholeRangeInOneAllocation) {
  EXPECT_FALSE(check(kGlobal, 4096).fault);
  EXPECT_EQ(check(kGlobal, 4097).fault, FaultKind::kOutOfRange);
  EXPECT_EQ(check(kGlobal + 4096, 1).fault, FaultKind::kOutOfRange);
  EXPECT_EQ(check(kGlobal - 4, 8).fault, FaultKind::kOutOfRange);
  EXPECT_EQ(details(kGlobal + 4096 + 32, 16),
            "read of 16 bytes at 32 bytes past the end of allocation 1 (4096 bytes)");
}

TEST_F(AccessCheckTest, RequiresNaturalAlignment) {
  for (const std::size_t bytes : {2u, 4u, 8u, 16u}) {
    EXPECT_FALSE(check(kGlobal + bytes, bytes).fault);
    EXPECT_EQ(check(kGlobal + bytes / 2, bytes).fault, FaultKind::kMisaligned);
  }
  EXPECT_FALSE(check(kGlobal + 1, 1).fault);
  EXPECT_FALSE(check(kGlobal + 1, 24).fault);  // a block, not an instruction
  EXPECT_EQ(check(0x100000 + 2050, 4).fault, FaultKind::kMisaligned);
  EXPECT_EQ(details(kGlobal + 2, 4), "read of 4 bytes at byte 2 of allocation 1 (4096 bytes)");
  EXPECT_EQ(details(0x100000 + 2050, 4), "read of 4 bytes at dynamic shared memory offset 2");
}

TEST_F(AccessCheckTest, LetsParametersAndConstantsBeReadOnly) {
  EXPECT_FALSE(check(0x300040, 16).fault);
  EXPECT_EQ(check(0x300040, 16, true).fault, FaultKind::kReadOnly);
  EXPECT_EQ(check(0x300050, 4).fault, FaultKind::kOutOfRange);
  EXPECT_FALSE(check(0x310800, 16, true).fault);  // a variable among the constants
  EXPECT_EQ(check(0x310900, 16, true).fault, FaultKind::kReadOnly);
}

TEST_F(AccessCheckTest, RefusesAddressesThatWrapAround) {
  EXPECT_EQ(check(~std::uintptr_t{0} - 3, 8).fault, FaultKind::kOutOfRange);
  EXPECT_EQ(check(kGlobal + 8, ~std::size_t{0}).fault, FaultKind::kOutOfRange);
  EXPECT_EQ(check(0x100000 + 2048, ~std::size_t{0}).fault, FaultKind::kOutOfRange);
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
