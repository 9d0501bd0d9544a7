#include "jit/host/memory_map.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace attune::host {
namespace {

const void* at(std::uintptr_t address) { return reinterpret_cast<const void*>(address); }

class MemoryMapTest : public testing::Test {
 protected:
  MemoryMapTest() {
    map.add(at(0x10000), 4096);
    map.add(at(0x30000), 100);
    map.add(at(0x20000), 256);
  }
  MemoryMap map;
};

TEST_F(MemoryMapTest, FindsAnAllocationByEachOfItsBytes) {
  const Allocation first{0x10000, 4096, 1};
  EXPECT_EQ(map.find(at(0x10000)), first);
  EXPECT_EQ(map.find(at(0x10fff)), first);
  EXPECT_EQ(map.find(at(0x20010))->number, 3u);
  EXPECT_EQ(map.find(at(0x30063))->number, 2u);
}

TEST_F(MemoryMapTest, FindsNothingBesideThem) {
  for (const std::uintptr_t address : {0x0ul, 0xfffful, 0x11000ul, 0x30064ul, ~0x0ul}) {
    EXPECT_FALSE(map.find(at(address))) << address;
  }
  EXPECT_FALSE(MemoryMap().find(at(0x10000)));
}

TEST_F(MemoryMapTest, ForgetsWhatIsRemoved) {
  EXPECT_FALSE(map.remove(at(0x10001)));
  EXPECT_TRUE(map.remove(at(0x10000)));
  EXPECT_FALSE(map.remove(at(0x10000)));
  EXPECT_FALSE(map.find(at(0x10000)));
  EXPECT_TRUE(map.find(at(0x20000)));
}

TEST_F(MemoryMapTest, NeverGivesANumberTwice) {
  EXPECT_TRUE(map.remove(at(0x30000)));
  EXPECT_EQ(map.add(at(0x30000), 100).number, 4u);
}

TEST_F(MemoryMapTest, DescribesAddressesAroundAllocations) {
  EXPECT_EQ(map.describe(at(0x11000), 16), "0 bytes past the end of allocation 1 (4096 bytes)");
  EXPECT_EQ(map.describe(at(0x11020), 16), "32 bytes past the end of allocation 1 (4096 bytes)");
  EXPECT_EQ(map.describe(at(0x1fff0), 16), "16 bytes in front of allocation 3 (256 bytes)");
  EXPECT_EQ(map.describe(at(0xfff8), 4), "8 bytes in front of allocation 1 (4096 bytes)");
  EXPECT_EQ(map.describe(at(0x30100), 4), "156 bytes past the end of allocation 2 (100 bytes)");
}

TEST_F(MemoryMapTest, DescribesAnAccessAcrossTheEnd) {
  EXPECT_EQ(map.describe(at(0x10ff8), 16),
            "byte 4088 of allocation 1 (4096 bytes), 8 bytes too many");
}

TEST_F(MemoryMapTest, DescribesAUseAfterFree) {
  map.remove(at(0x20000));
  EXPECT_EQ(map.describe(at(0x20010), 4), "byte 16 of allocation 3 (256 bytes), which is freed");
  map.add(at(0x20000), 8);  // the rest of the range stays free
  EXPECT_EQ(map.describe(at(0x20010), 4), "byte 16 of allocation 3 (256 bytes), which is freed");
}

TEST_F(MemoryMapTest, DescribesAddressesFarFromEverything) {
  EXPECT_EQ(map.describe(nullptr, 4), "null pointer plus 0 bytes");
  EXPECT_EQ(map.describe(at(24), 4), "null pointer plus 24 bytes");
  EXPECT_EQ(map.describe(at(0x7f0000000000), 4),
            "address 0x7f0000000000, which is near no allocation");
  EXPECT_EQ(MemoryMap().describe(at(0x10000), 4), "address 0x10000, which is near no allocation");
}

TEST_F(MemoryMapTest, ShowsChangesToAView) {
  MemoryView view(map);
  ASSERT_NE(view.find(at(0x10010)), nullptr);
  EXPECT_EQ(view.find(at(0x10010))->number, 1u);
  EXPECT_EQ(view.find(at(0x40000)), nullptr);
  map.add(at(0x40000), 16);
  ASSERT_NE(view.find(at(0x40000)), nullptr);
  map.remove(at(0x10000));
  EXPECT_EQ(view.find(at(0x10010)), nullptr);
  EXPECT_EQ(view.find(at(0x40010)), nullptr);
}

TEST(MemoryMapThreads, LookWhileOthersAllocate) {
  MemoryMap map;
  map.add(at(0x10000), 4096);
  std::vector<std::jthread> threads;
  for (std::uintptr_t id = 1; id <= 2; ++id) {
    threads.emplace_back([&map, id] {
      for (int i = 0; i < 500; ++i) {
        map.add(at(id << 20), 64);
        map.remove(at(id << 20));
      }
    });
  }
  std::atomic<int> num_missed = 0;
  for (int reader = 0; reader < 2; ++reader) {
    threads.emplace_back([&] {
      MemoryView view(map);
      for (int i = 0; i < 2000; ++i) {
        const Allocation* found = view.find(at(0x10008));
        if (found == nullptr || found->number != 1) ++num_missed;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(num_missed, 0);
  EXPECT_EQ(map.table()->size(), 1u);
}

}  // namespace
}  // namespace attune::host
