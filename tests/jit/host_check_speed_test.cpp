// What a checked access costs: printed, and held only to what makes checking unusable.
#include <time.h>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "jit/host/access_check.h"
#include "jit/host/race_check.h"

namespace attune::host {
namespace {

constexpr int kNumThreads = 256;
constexpr std::uint32_t kWindowBytes = 128 << 10;
// Sanitizers and a loaded machine cost much; an accidental quadratic step costs more.
constexpr double kSlack = 100;

// Of this thread: other programs on the machine do not count.
double cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

std::vector<int> all_threads(int count = kNumThreads) {
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// The best of a few rounds, in ns for one of `count`.
template <typename Round>
double best_ns(int count, const Round& round) {
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    const double begin = cpu_ns();
    round();
    best = std::min(best, (cpu_ns() - begin) / count);
  }
  return best;
}

void report(const char* what, double ns, double goal_ns) {
  std::cout << fmt::format("{:<58} {:>10.1f} ns, goal {} ns\n", what, ns, goal_ns);
  EXPECT_LT(ns, goal_ns * kSlack) << what;
}

TEST(CheckSpeed, OfASameThreadAgain) {
  RaceChecker checker(kNumThreads, kWindowBytes);
  constexpr int kCount = 1 << 20;
  report("4 bytes, the thread's own again, read",
         best_ns(kCount,
                 [&] {
                   for (int i = 0; i < kCount; ++i) {
                     const auto offset = static_cast<std::uint32_t>(i % 1024) * 4;
                     ASSERT_FALSE(checker.read(7, offset, 4, nullptr));
                   }
                 }),
         30);
  report("4 bytes, the thread's own again, written",
         best_ns(kCount,
                 [&] {
                   for (int i = 0; i < kCount; ++i) {
                     const auto offset = static_cast<std::uint32_t>(i % 1024) * 4;
                     ASSERT_FALSE(checker.write(7, offset, 4, nullptr));
                   }
                 }),
         30);
}

// Every phase: each thread writes its share of a tile, and after a barrier reads that of others.
TEST(CheckSpeed, OfATileThatChangesHands) {
  RaceChecker checker(kNumThreads, kWindowBytes);
  const std::vector<int> all = all_threads();
  for (const std::uint32_t bytes : {4u, 16u}) {
    const std::uint32_t per_thread = kWindowBytes / kNumThreads / bytes;
    const int count = static_cast<int>(per_thread) * kNumThreads * 4;
    const auto sweep = [&](bool is_write, std::uint32_t shift) {
      for (int thread = 0; thread < kNumThreads; ++thread) {
        const std::uint32_t place = (static_cast<std::uint32_t>(thread) + shift) % kNumThreads;
        for (std::uint32_t i = 0; i < per_thread; ++i) {
          const std::uint32_t offset = (i * kNumThreads + place) * bytes;
          ASSERT_FALSE(is_write ? checker.write(thread, offset, bytes, nullptr)
                                : checker.read(thread, offset, bytes, nullptr));
        }
      }
    };
    report(fmt::format("{} bytes, a write and three reads by threads in turn", bytes).c_str(),
           best_ns(count,
                   [&] {
                     sweep(true, 0);
                     checker.barrier(all);
                     for (const std::uint32_t shift : {1u, 2u, 40u}) sweep(false, shift);
                     checker.barrier(all);
                   }),
           30);
  }
}

// A few floats that every thread reads after every barrier, as row scales are.
TEST(CheckSpeed, OfALineThatEverybodyReads) {
  RaceChecker checker(kNumThreads, kWindowBytes);
  const std::vector<int> all = all_threads();
  report("4 bytes that all 256 threads read between barriers",
         best_ns(100 * 16 * kNumThreads,
                 [&] {
                   for (int phase = 0; phase < 100; ++phase) {
                     for (int row = 0; row < 16; ++row) {
                       ASSERT_FALSE(
                           checker.write(row, static_cast<std::uint32_t>(row) * 4, 4, nullptr));
                     }
                     checker.barrier(all);
                     for (int thread = 0; thread < kNumThreads; ++thread) {
                       for (std::uint32_t row = 0; row < 16; ++row) {
                         ASSERT_FALSE(checker.read(thread, row * 4, 4, nullptr));
                       }
                     }
                     checker.barrier(all);
                   }
                 }),
         60);
}

TEST(CheckSpeed, OfBarriers) {
  for (const int num_threads : {256, 1024}) {
    RaceChecker checker(num_threads, kWindowBytes);
    const std::vector<int> all = all_threads(num_threads);
    report(fmt::format("barrier of {} threads", num_threads).c_str(),
           best_ns(1000,
                   [&] {
                     for (int i = 0; i < 1000; ++i) checker.barrier(all);
                   }),
           50e3);
    const int num_warps = num_threads / 32;
    report(fmt::format("__syncwarp of one of {} warps", num_warps).c_str(),
           best_ns(100 * num_warps,
                   [&] {
                     for (int i = 0; i < 100 * num_warps; ++i) {
                       checker.barrier(std::span(all).subspan(
                           static_cast<std::size_t>(i % num_warps) * 32, 32));
                     }
                   }),
           5e3);
    // The worst case: no two threads know the same.
    report(fmt::format("barrier of {} threads that each waited for another", num_threads).c_str(),
           best_ns(20,
                   [&] {
                     for (int i = 0; i < 20; ++i) {
                       for (const int thread : all) {
                         checker.release(thread, static_cast<std::uint64_t>(thread));
                         checker.acquire((thread + 1) % num_threads,
                                         static_cast<std::uint64_t>(thread));
                       }
                       checker.barrier(all);
                     }
                   }),
           1e6);
  }
}

TEST(CheckSpeed, OfAsynchronousCopies) {
  RaceChecker checker(kNumThreads, kWindowBytes);
  const std::vector<int> all = all_threads();
  const int count = static_cast<int>(kWindowBytes / 16);
  std::vector<RaceChecker::AsyncId> ids(static_cast<std::size_t>(count));
  report("cp.async of 16 bytes, begun and waited for",
         best_ns(count,
                 [&] {
                   for (int i = 0; i < count; ++i) {
                     const auto begun = checker.async_begin(
                         i % kNumThreads, {static_cast<std::uint32_t>(i) * 16, 16, true,
                                           Operation::kCpAsync, nullptr});
                     ASSERT_FALSE(begun.race);
                     ids[static_cast<std::size_t>(i)] = begun.id;
                   }
                   for (int i = 0; i < count; ++i) {
                     checker.async_end(ids[static_cast<std::size_t>(i)], i % kNumThreads);
                   }
                   checker.barrier(all);
                 }),
         200);
  checker.reset(kNumThreads);
  report("bulk load of 32 KiB over an mbarrier, 128 threads wait",
         best_ns(100,
                 [&] {
                   for (int i = 0; i < 100; ++i) {
                     const auto begun =
                         checker.async_begin(0, {0, 32 << 10, true, Operation::kBulkLoad, nullptr});
                     ASSERT_FALSE(begun.race);
                     checker.async_end_on(begun.id, 1);
                     for (int thread = 128; thread < 256; ++thread) {
                       checker.acquire(thread, 1);
                       checker.release(thread, 2);
                     }
                     checker.acquire(0, 2);
                   }
                 }),
         100e3);
}

TEST(CheckSpeed, OfTheNextCta) {
  RaceChecker checker(kNumThreads, kWindowBytes);
  ASSERT_FALSE(checker.write(0, 0, kWindowBytes, nullptr));
  report("reset",
         best_ns(1000,
                 [&] {
                   for (int i = 0; i < 1000; ++i) checker.reset(kNumThreads);
                 }),
         20e3);
}

TEST(CheckSpeed, OfGlobalAddresses) {
  MemoryMap map;
  std::vector<const void*> addresses;
  for (std::uintptr_t i = 1; i <= 1000; ++i) {
    addresses.push_back(reinterpret_cast<const void*>(i << 20));
    map.add(addresses.back(), 64 << 10);
  }
  MemoryView view(map);
  const AccessScope scope;
  report("access check in one allocation",
         best_ns(1 << 20,
                 [&] {
                   for (int i = 0; i < 1 << 20; ++i) {
                     ASSERT_FALSE(check_access(scope, view, addresses[500], 4, false));
                   }
                 }),
         20);
  report("access check in 1000 allocations in turn",
         best_ns(1 << 20,
                 [&] {
                   for (std::size_t i = 0; i < 1 << 20; ++i) {
                     ASSERT_FALSE(check_access(scope, view, addresses[i * 7 % 1000], 4, false));
                   }
                 }),
         100);
}

}  // namespace
}  // namespace attune::host
