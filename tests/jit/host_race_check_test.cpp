#include <gtest/gtest.h>

#include "tests/jit/race_fixture.h"

namespace attune::host {
namespace {

using RaceCheck = RaceFixture;

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
