// Copies and tensor-core operands in flight, and the fences between the proxies.
#include <gtest/gtest.h>

#include "tests/jit/race_fixture.h"

namespace attune::host {
namespace {

using RaceAsync = RaceFixture;

TEST_F(RaceAsync, ReportsAReadInFrontOfTheWaitForItsOwnCopy) {
  const auto copy = checker.async_begin(3, copy_in(32));
  EXPECT_FALSE(copy.race);
  const std::optional<Race> race = read(3, 40);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->kind, RaceKind::kInFlight);
  EXPECT_EQ(race->earlier.operation, Operation::kCpAsync);
  EXPECT_TRUE(race->earlier.is_async);
  EXPECT_EQ(race->earlier.offset, 32u);
  EXPECT_EQ(race->earlier.bytes, 16u);
  checker.async_end(copy.id, 3);
  EXPECT_FALSE(read(3, 40));
}

TEST_F(RaceAsync, ReportsACopyThatOneThreadHasWaitedForWithoutABarrier) {
  const auto copy = checker.async_begin(3, copy_in(32));
  checker.async_end(copy.id, 3);
  EXPECT_TRUE(read(4, 32));
  barrier();
  EXPECT_FALSE(read(5, 32));
}

TEST_F(RaceAsync, ReportsABarrierInFrontOfTheWait) {
  const auto copy = checker.async_begin(3, copy_in(32));
  barrier();
  checker.async_end(copy.id, 3);
  const std::optional<Race> race = read(4, 32);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->kind, RaceKind::kUnordered);
  EXPECT_EQ(race->earlier.thread, 3);
}

TEST_F(RaceAsync, ReportsACopyIntoASlotThatAnotherWarpReads) {
  EXPECT_FALSE(read(40, 512, 16));
  const auto copy = checker.async_begin(0, copy_in(512));
  ASSERT_TRUE(copy.race);
  EXPECT_EQ(copy.race->earlier.thread, 40);
  EXPECT_EQ(copy.race->later.operation, Operation::kCpAsync);
  EXPECT_TRUE(copy.race->later.is_async);
}

TEST_F(RaceAsync, ReportsAReadOfASlotThatIsBeingOverwritten) {
  EXPECT_FALSE(read(40, 512, 16));
  barrier();
  EXPECT_FALSE(checker.async_begin(0, copy_in(512)).race);
  EXPECT_TRUE(read(40, 512, 16));
}

TEST_F(RaceAsync, FollowsABulkLoadOverAnMbarrier) {
  constexpr std::uint64_t kFull = 64;
  const auto load = checker.async_begin(0, bulk_load(1024, 512));
  EXPECT_TRUE(read(33, 1024 + 500));
  checker.async_end_on(load.id, kFull);
  checker.acquire(33, kFull);
  EXPECT_FALSE(read(33, 1024, 16));
  EXPECT_FALSE(read(33, 1024 + 496, 16));
  const std::optional<Race> race = read(34, 1024);  // has not waited
  ASSERT_TRUE(race);
  EXPECT_EQ(race->earlier.thread, 0);
  EXPECT_EQ(race->earlier.operation, Operation::kBulkLoad);
}

TEST_F(RaceAsync, DoesNotTakeOneLoadsMbarrierForAnothers) {
  const auto first = checker.async_begin(0, bulk_load(0, 64));
  const auto second = checker.async_begin(0, bulk_load(64, 64));
  checker.async_end_on(first.id, 1);
  checker.async_end_on(second.id, 2);
  checker.acquire(33, 2);
  EXPECT_FALSE(read(33, 64));
  EXPECT_TRUE(read(33, 0));
}

TEST_F(RaceAsync, OrdersTheNextLoadBehindTheConsumersOfASlot) {
  constexpr std::uint64_t kFull = 1, kFree = 2;
  for (int round = 0; round < 40; ++round) {
    if (round > 0) checker.acquire(0, kFree);
    const auto load = checker.async_begin(0, bulk_load(0, 256));
    EXPECT_FALSE(load.race) << round;
    checker.async_end_on(load.id, kFull);
    for (int thread = 32; thread < 64; ++thread) {
      checker.acquire(thread, kFull);
      EXPECT_FALSE(read(thread, static_cast<std::uint32_t>(thread % 16) * 16, 16)) << round;
      checker.release(thread, kFree);
    }
  }
  EXPECT_TRUE(checker.async_begin(0, bulk_load(0, 256)).race);
}

TEST_F(RaceAsync, ReportsAWriteToTheSourceOfARunningStore) {
  const auto store = checker.async_begin(0, bulk_store(0, 256));
  EXPECT_FALSE(read(1, 0));
  EXPECT_TRUE(write(0, 128));
  checker.async_end(store.id, 0);
  EXPECT_FALSE(write(0, 64));
  EXPECT_TRUE(write(1, 32));
}

TEST_F(RaceAsync, RequiresAFenceBetweenAWriteAndABulkStore) {
  EXPECT_FALSE(write(5, 16));
  barrier();
  const std::optional<Race> race = checker.async_begin(0, bulk_store(0, 64)).race;
  ASSERT_TRUE(race);
  EXPECT_EQ(race->kind, RaceKind::kMissingFence);
  EXPECT_EQ(race->earlier.thread, 5);
}

TEST_F(RaceAsync, AcceptsAFenceOfTheWriterOrOfTheIssuer) {
  EXPECT_FALSE(write(5, 16));
  checker.fence_proxy(5);
  barrier();
  EXPECT_FALSE(checker.async_begin(0, bulk_store(0, 64)).race);
  EXPECT_FALSE(write(6, 1040));
  barrier();
  checker.fence_proxy(0);
  EXPECT_FALSE(checker.async_begin(0, bulk_store(1024, 64)).race);
}

TEST_F(RaceAsync, IgnoresFencesThatAreNotOnTheWay) {
  EXPECT_FALSE(write(5, 0));
  EXPECT_FALSE(write(6, 16));
  checker.fence_proxy(5);  // knows nothing of thread 6
  EXPECT_FALSE(write(5, 4));
  barrier();
  EXPECT_FALSE(checker.async_begin(0, bulk_store(0, 4)).race);
  EXPECT_TRUE(checker.async_begin(0, bulk_store(4, 4)).race);
  EXPECT_TRUE(checker.async_begin(0, bulk_store(16, 4)).race);
}

TEST_F(RaceAsync, NeedsNoFenceForWhatTheAsyncProxyWrote) {
  const auto load = checker.async_begin(0, bulk_load(0, 64));
  checker.async_end_on(load.id, 1);
  checker.acquire(1, 1);
  EXPECT_FALSE(checker.async_begin(1, {0, 64, false, Operation::kWgmma, line(1)}).race);
}

TEST_F(RaceAsync, NeedsAFenceBetweenCpAsyncAndWgmma) {
  const auto copy = checker.async_begin(1, copy_in(0));
  checker.async_end(copy.id, 1);
  const RaceChecker::Async operand{0, 16, false, Operation::kWgmma, line(1)};
  const auto product = checker.async_begin(1, operand);
  ASSERT_TRUE(product.race);
  EXPECT_EQ(product.race->kind, RaceKind::kMissingFence);
  checker.fence_proxy(1);
  EXPECT_FALSE(checker.async_begin(1, operand).race);
}

TEST_F(RaceAsync, NeedsAFenceForAStoreRightBehindALoadOfTheAsyncProxy) {
  const auto load = checker.async_begin(0, bulk_load(0, 64));
  checker.async_end(load.id, 0);
  EXPECT_FALSE(write(0, 16));
  EXPECT_FALSE(checker.async_begin(0, bulk_store(0, 16)).race);
  EXPECT_TRUE(checker.async_begin(0, bulk_store(16, 4)).race);
}

}  // namespace
}  // namespace attune::host
