#include "jit/host/race_check.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace attune::host {
namespace {

constexpr std::uint32_t kWindowBytes = 4096;
constexpr int kNumThreads = 64;

const void* line(std::uintptr_t number) { return reinterpret_cast<const void*>(number); }

std::vector<int> threads(int first, int count) {
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

RaceChecker::Async copy_in(std::uint32_t offset, std::uint32_t bytes = 16) {
  return {offset, bytes, true, Operation::kCpAsync, line(500)};
}
RaceChecker::Async bulk_load(std::uint32_t offset, std::uint32_t bytes) {
  return {offset, bytes, true, Operation::kBulkLoad, line(600)};
}
RaceChecker::Async bulk_store(std::uint32_t offset, std::uint32_t bytes) {
  return {offset, bytes, false, Operation::kBulkStore, line(700)};
}

class RaceCheck : public testing::Test {
 protected:
  std::optional<Race> read(int thread, std::uint32_t offset, std::uint32_t bytes = 4) {
    return checker.read(thread, offset, bytes, line(100), Operation::kLdmatrix);
  }
  std::optional<Race> write(int thread, std::uint32_t offset, std::uint32_t bytes = 4) {
    return checker.write(thread, offset, bytes, line(200));
  }
  void barrier() { checker.barrier(threads(0, kNumThreads)); }

  RaceChecker checker{kNumThreads, kWindowBytes};
};

TEST_F(RaceCheck, ReportsBothSidesOfAReadWithoutABarrierBehindTheWrite) {
  EXPECT_FALSE(write(37, 288));
  const std::optional<Race> race = read(5, 288, 16);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->kind, RaceKind::kUnordered);
  EXPECT_EQ(race->earlier.thread, 37);
  EXPECT_EQ(race->earlier.operation, Operation::kStore);
  EXPECT_TRUE(race->earlier.is_write);
  EXPECT_EQ(race->earlier.code, line(200));
  EXPECT_EQ(race->earlier.offset, 288u);
  EXPECT_EQ(race->earlier.bytes, 4u);
  EXPECT_EQ(race->later.thread, 5);
  EXPECT_EQ(race->later.operation, Operation::kLdmatrix);
  EXPECT_FALSE(race->later.is_write);
  EXPECT_EQ(race->later.code, line(100));
  EXPECT_EQ(race->later.bytes, 16u);
}

TEST_F(RaceCheck, AcceptsAReadBehindABarrier) {
  EXPECT_FALSE(write(37, 288));
  barrier();
  for (int thread = 0; thread < kNumThreads; ++thread) EXPECT_FALSE(read(thread, 288, 16));
}

TEST_F(RaceCheck, ReportsAWriteToWhatAnotherThreadStillReads) {
  EXPECT_FALSE(write(0, 0));
  barrier();
  EXPECT_FALSE(read(1, 0));
  EXPECT_FALSE(read(2, 0));
  const std::optional<Race> race = write(1, 0);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->earlier.thread, 2);
  EXPECT_FALSE(race->earlier.is_write);
}

TEST_F(RaceCheck, AcceptsAWriteWhenABarrierIsBehindTheReads) {
  EXPECT_FALSE(read(1, 0));
  EXPECT_FALSE(read(2, 0));
  barrier();
  EXPECT_FALSE(write(1, 0));
}

TEST_F(RaceCheck, ReportsTwoWritesWithoutABarrier) {
  EXPECT_FALSE(write(1, 64, 8));
  const std::optional<Race> race = write(2, 68);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->earlier.offset, 64u);
  EXPECT_EQ(race->earlier.bytes, 8u);
}

TEST_F(RaceCheck, ReportsAReaderThatTheBarrierLeftOut) {
  EXPECT_FALSE(write(0, 0));
  checker.barrier(threads(0, 32));
  EXPECT_FALSE(read(31, 0));
  EXPECT_TRUE(read(32, 0));
}

TEST_F(RaceCheck, FindsAReadAmongManyThatTheWriterDoesNotKnow) {
  for (int thread = 0; thread < kNumThreads; ++thread) EXPECT_FALSE(read(thread, 0));
  checker.barrier(threads(0, kNumThreads - 1));
  const std::optional<Race> race = write(0, 0);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->earlier.thread, kNumThreads - 1);
}

TEST_F(RaceCheck, KeepsNeighbouringBytesApart) {
  for (const std::uint32_t bytes : {1u, 2u, 4u, 8u, 16u}) {
    for (std::uint32_t offset = 1024; offset < 1056; offset += bytes) {
      EXPECT_FALSE(write(static_cast<int>(offset / bytes) % kNumThreads, offset, bytes));
    }
    EXPECT_TRUE(write(60, 1024 + 32 - bytes, 1));
    barrier();
  }
}

TEST_F(RaceCheck, ReportsEveryByteOfAnAccessAcrossGranules) {
  EXPECT_FALSE(write(0, 46, 1));
  EXPECT_FALSE(read(1, 16, 30));
  EXPECT_TRUE(read(1, 16, 31));
  EXPECT_FALSE(read(1, 47, 40));
}

TEST_F(RaceCheck, DoesNotOrderThreadsOfAWarp) {
  EXPECT_FALSE(write(0, 0));
  EXPECT_TRUE(read(1, 0));
  barrier();
  EXPECT_FALSE(write(0, 0));
  checker.barrier(threads(0, 32));  // __syncwarp
  EXPECT_FALSE(read(1, 0));
}

TEST_F(RaceCheck, FollowsAProducerAndItsConsumersOverANamedBarrier) {
  constexpr std::uint64_t kFull = 1, kFree = 2;
  for (int round = 0; round < 3; ++round) {
    for (int thread = 0; thread < 32; ++thread) {
      checker.acquire(thread, kFree);
      EXPECT_FALSE(write(thread, static_cast<std::uint32_t>(thread) * 4)) << round;
      checker.release(thread, kFull);
    }
    for (int thread = 32; thread < 64; ++thread) {
      checker.acquire(thread, kFull);
      EXPECT_FALSE(read(thread, 0, 128)) << round;
      checker.release(thread, kFree);
    }
  }
  EXPECT_TRUE(write(0, 0));  // one round without waiting for the readers
}

TEST_F(RaceCheck, ReportsAnAcquireInFrontOfTheRelease) {
  EXPECT_FALSE(write(0, 0));
  checker.acquire(1, 7);
  checker.release(0, 7);
  EXPECT_TRUE(read(1, 0));
}

TEST_F(RaceCheck, ReportsAWriteBehindTheReleaseThatShouldPublishIt) {
  checker.release(0, 7);
  EXPECT_FALSE(write(0, 0));
  checker.acquire(1, 7);
  EXPECT_TRUE(read(1, 0));
}

TEST_F(RaceCheck, KeepsObjectsApart) {
  EXPECT_FALSE(write(0, 0));
  checker.release(0, 7);
  checker.acquire(1, 8);
  EXPECT_TRUE(read(1, 0));
}

TEST_F(RaceCheck, OrdersAlongAChainOfThreads) {
  EXPECT_FALSE(write(0, 0));
  checker.release(0, 7);
  checker.acquire(1, 7);
  checker.release(1, 8);
  checker.acquire(2, 8);
  EXPECT_FALSE(write(2, 0));
}

TEST_F(RaceCheck, LetsAtomicsMeetButNotOrdinaryAccesses) {
  EXPECT_FALSE(checker.atomic(0, 0, 4, line(1)));
  EXPECT_FALSE(checker.atomic(1, 0, 4, line(1)));
  const std::optional<Race> race = read(2, 0);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->earlier.operation, Operation::kAtomic);
  barrier();
  EXPECT_FALSE(read(2, 0));
  EXPECT_TRUE(checker.atomic(3, 0, 4, line(1)));
}

TEST_F(RaceCheck, ReportsAReadInFrontOfTheWaitForItsOwnCopy) {
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

TEST_F(RaceCheck, ReportsACopyThatOneThreadHasWaitedForWithoutABarrier) {
  const auto copy = checker.async_begin(3, copy_in(32));
  checker.async_end(copy.id, 3);
  EXPECT_TRUE(read(4, 32));
  barrier();
  EXPECT_FALSE(read(5, 32));
}

TEST_F(RaceCheck, ReportsABarrierInFrontOfTheWait) {
  const auto copy = checker.async_begin(3, copy_in(32));
  barrier();
  checker.async_end(copy.id, 3);
  const std::optional<Race> race = read(4, 32);
  ASSERT_TRUE(race);
  EXPECT_EQ(race->kind, RaceKind::kUnordered);
  EXPECT_EQ(race->earlier.thread, 3);
}

TEST_F(RaceCheck, ReportsACopyIntoASlotThatAnotherWarpReads) {
  EXPECT_FALSE(read(40, 512, 16));
  const auto copy = checker.async_begin(0, copy_in(512));
  ASSERT_TRUE(copy.race);
  EXPECT_EQ(copy.race->earlier.thread, 40);
  EXPECT_EQ(copy.race->later.operation, Operation::kCpAsync);
  EXPECT_TRUE(copy.race->later.is_async);
}

TEST_F(RaceCheck, ReportsAReadOfASlotThatIsBeingOverwritten) {
  EXPECT_FALSE(read(40, 512, 16));
  barrier();
  EXPECT_FALSE(checker.async_begin(0, copy_in(512)).race);
  EXPECT_TRUE(read(40, 512, 16));
}

TEST_F(RaceCheck, FollowsABulkLoadOverAnMbarrier) {
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

TEST_F(RaceCheck, DoesNotTakeOneLoadsMbarrierForAnothers) {
  const auto first = checker.async_begin(0, bulk_load(0, 64));
  const auto second = checker.async_begin(0, bulk_load(64, 64));
  checker.async_end_on(first.id, 1);
  checker.async_end_on(second.id, 2);
  checker.acquire(33, 2);
  EXPECT_FALSE(read(33, 64));
  EXPECT_TRUE(read(33, 0));
}

TEST_F(RaceCheck, OrdersTheNextLoadBehindTheConsumersOfASlot) {
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

TEST_F(RaceCheck, ReportsAWriteToTheSourceOfARunningStore) {
  const auto store = checker.async_begin(0, bulk_store(0, 256));
  EXPECT_FALSE(read(1, 0));
  EXPECT_TRUE(write(0, 128));
  checker.async_end(store.id, 0);
  EXPECT_FALSE(write(0, 64));
  EXPECT_TRUE(write(1, 32));
}

TEST_F(RaceCheck, RequiresAFenceBetweenAWriteAndABulkStore) {
  EXPECT_FALSE(write(5, 16));
  barrier();
  const std::optional<Race> race = checker.async_begin(0, bulk_store(0, 64)).race;
  ASSERT_TRUE(race);
  EXPECT_EQ(race->kind, RaceKind::kMissingFence);
  EXPECT_EQ(race->earlier.thread, 5);
}

TEST_F(RaceCheck, AcceptsAFenceOfTheWriterOrOfTheIssuer) {
  EXPECT_FALSE(write(5, 16));
  checker.fence_proxy(5);
  barrier();
  EXPECT_FALSE(checker.async_begin(0, bulk_store(0, 64)).race);
  EXPECT_FALSE(write(6, 1040));
  barrier();
  checker.fence_proxy(0);
  EXPECT_FALSE(checker.async_begin(0, bulk_store(1024, 64)).race);
}

TEST_F(RaceCheck, IgnoresFencesThatAreNotOnTheWay) {
  EXPECT_FALSE(write(5, 0));
  EXPECT_FALSE(write(6, 16));
  checker.fence_proxy(5);  // knows nothing of thread 6
  EXPECT_FALSE(write(5, 4));
  barrier();
  EXPECT_FALSE(checker.async_begin(0, bulk_store(0, 4)).race);
  EXPECT_TRUE(checker.async_begin(0, bulk_store(4, 4)).race);
  EXPECT_TRUE(checker.async_begin(0, bulk_store(16, 4)).race);
}

TEST_F(RaceCheck, NeedsNoFenceForWhatTheAsyncProxyWrote) {
  const auto load = checker.async_begin(0, bulk_load(0, 64));
  checker.async_end_on(load.id, 1);
  checker.acquire(1, 1);
  EXPECT_FALSE(checker.async_begin(1, {0, 64, false, Operation::kWgmma, line(1)}).race);
}

TEST_F(RaceCheck, NeedsAFenceBetweenCpAsyncAndWgmma) {
  const auto copy = checker.async_begin(1, copy_in(0));
  checker.async_end(copy.id, 1);
  const RaceChecker::Async operand{0, 16, false, Operation::kWgmma, line(1)};
  const auto product = checker.async_begin(1, operand);
  ASSERT_TRUE(product.race);
  EXPECT_EQ(product.race->kind, RaceKind::kMissingFence);
  checker.fence_proxy(1);
  EXPECT_FALSE(checker.async_begin(1, operand).race);
}

TEST_F(RaceCheck, StartsTheNextCtaWithoutAPast) {
  EXPECT_FALSE(write(0, 0));
  EXPECT_FALSE(checker.async_begin(0, copy_in(16)).race);
  checker.release(0, 7);
  checker.reset(kNumThreads);
  EXPECT_FALSE(write(1, 0));
  EXPECT_FALSE(read(2, 16));
  checker.acquire(2, 7);
  EXPECT_TRUE(read(2, 0));
}

TEST_F(RaceCheck, TakesAnotherNumberOfThreadsAtReset) {
  checker.reset(1024);
  EXPECT_FALSE(write(1023, 0));
  checker.barrier(threads(0, 1024));
  EXPECT_FALSE(read(0, 0));
  checker.reset(32);
  EXPECT_FALSE(write(31, 0));
  EXPECT_TRUE(write(30, 0));
}

TEST_F(RaceCheck, FindsTheFirstByteThatNobodyHasWritten) {
  EXPECT_TRUE(checker.uninitialized(0, 4));
  EXPECT_FALSE(write(0, 0, 16));
  EXPECT_FALSE(write(0, 16, 2));
  EXPECT_FALSE(checker.uninitialized(4, 14));
  ASSERT_TRUE(checker.uninitialized(4, 16));
  EXPECT_EQ(checker.uninitialized(4, 16)->offset, 18u);
  EXPECT_FALSE(checker.atomic(0, 20, 4, line(1)));
  EXPECT_FALSE(checker.async_begin(0, copy_in(32)).race);
  EXPECT_FALSE(checker.uninitialized(20, 4));
  EXPECT_FALSE(checker.uninitialized(32, 16));
  checker.reset(kNumThreads);
  EXPECT_TRUE(checker.uninitialized(0, 1));
}

TEST_F(RaceCheck, NamesBothSidesInText) {
  EXPECT_FALSE(checker.read(5, 1312, 16, nullptr, Operation::kLdmatrix));
  const std::optional<Race> race = write(37, 1312);
  ASSERT_TRUE(race);
  EXPECT_EQ(to_text(*race, {.dynamic_begin = 1024}),
            "no barrier is between the read of 16 bytes at shared memory offset 288 by thread 5 "
            "(ldmatrix) and the write of 4 bytes at shared memory offset 288 by thread 37 (st)");
  const Fault fault = race_fault(*race);
  EXPECT_EQ(fault.kind, FaultKind::kRace);
  EXPECT_EQ(fault.code, line(200));
}

TEST_F(RaceCheck, NamesTheCtasOfACluster) {
  EXPECT_FALSE(checker.read(5, 2048 + 64, 4, nullptr));
  const std::optional<Race> race = checker.write(40, 2048 + 64, 4, nullptr);
  ASSERT_TRUE(race);
  EXPECT_EQ(to_text(*race, {.dynamic_begin = 0, .window_bytes = 2048, .num_threads = 32}),
            "no barrier is between the read of 4 bytes at shared memory offset 64 of CTA 1 by "
            "thread 5 of CTA 0 (ld) and the write of 4 bytes at shared memory offset 64 of CTA 1 "
            "by thread 8 of CTA 1 (st)");
}

}  // namespace
}  // namespace attune::host
