// Several threads and several processes use one file at once.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "tests/cache/fixtures.h"
#include "tests/support/processes.h"

namespace attune {
namespace {

using testing::run_processes;
using testing::sample_binary;
using testing::sample_gpu;
using testing::sample_toolchain;
using testing::sample_winner;
using testing::TempDir;
using testing::Warnings;

constexpr int kWinnersEach = 12;

Problem problem_of(int writer, int idx) {
  Problem problem = testing::sample_problem();
  problem.batch = 1 + writer;
  problem.kv = {1 + idx, 4096};
  return problem;
}

Winner winner_of(int writer, int idx) {
  Winner winner = sample_winner(problem_of(writer, idx));
  winner.candidate.split_cap = 1 + idx;
  // Half of the binaries are shared by all writers.
  winner.binary = sample_binary(idx % 2 == 0 ? std::to_string(idx)
                                             : std::to_string(writer) + "-" + std::to_string(idx));
  return winner;
}

void write_winners(TuneStore& store, int writer) {
  for (int idx = 0; idx < kWinnersEach; ++idx) {
    store.put_winner(sample_gpu(), winner_of(writer, idx));
  }
}

void expect_all_winners(const TuneStore& store, int num_writers) {
  EXPECT_EQ(store.winners().size(), static_cast<std::size_t>(num_writers * kWinnersEach));
  for (int writer = 0; writer < num_writers; ++writer) {
    for (int idx = 0; idx < kWinnersEach; ++idx) {
      const auto hit = store.find_winner(sample_gpu(), problem_of(writer, idx), sample_toolchain());
      ASSERT_TRUE(hit) << writer << " " << idx;
      EXPECT_EQ(hit->match, Match::kExact);
      EXPECT_EQ(hit->winner.candidate.split_cap, 1 + idx);
      EXPECT_EQ(hit->winner.binary.cubin, winner_of(writer, idx).binary.cubin);
      EXPECT_EQ(hit->winner.measurements.size(), 2u);
    }
  }
}

TEST(TuneStoreConcurrency, ThreadsShareOneStore) {
  constexpr int kThreads = 6;
  TempDir dir;
  Warnings warnings;
  const auto store = TuneStore::open(dir / "tune.db", warnings.sink());
  std::vector<std::thread> threads;
  for (int writer = 0; writer < kThreads; ++writer) {
    threads.emplace_back([&, writer] {
      write_winners(*store, writer);
      store->stats();
      store->find_winner(sample_gpu(), problem_of(writer, 0), sample_toolchain());
      store->binaries();
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_all_winners(*store, kThreads);
  EXPECT_EQ(warnings.count(), 0u);
}

TEST(TuneStoreConcurrency, ThreadsWithStoresOfTheirOwnShareOneFile) {
  constexpr int kThreads = 4;
  TempDir dir;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < kThreads; ++writer) {
    threads.emplace_back([&, writer] {
      const auto store = TuneStore::open(dir / "sub/tune.db");
      write_winners(*store, writer);
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_all_winners(*TuneStore::open(dir / "sub/tune.db"), kThreads);
}

TEST(TuneStoreConcurrency, ThreadsOnADamagedFileReplaceItOnce) {
  TempDir dir;
  const auto store = TuneStore::open(dir / "tune.db");
  store->put_binary(sample_binary(), "v");
  testing::tamper(dir / "tune.db", "UPDATE binaries SET cubin = x'00'");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 20; ++n) {
        store->find_binary(sample_binary().key);
        store->put_binary(sample_binary(), "v");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(store->find_binary(sample_binary().key));
}

TEST(TuneStoreConcurrency, ProcessesCreateAndFillOneFile) {
  constexpr int kProcesses = 6;
  TempDir dir;
  EXPECT_EQ(run_processes(kProcesses,
                          [&](int writer) {
                            const auto store = TuneStore::open(dir / "a/b/tune.db");
                            write_winners(*store, writer);
                          }),
            0);
  expect_all_winners(*TuneStore::open(dir / "a/b/tune.db"), kProcesses);
  EXPECT_TRUE(testing::files_with(dir / "a/b", "damaged").empty());
}

TEST(TuneStoreConcurrency, ProcessesThatMeetADamagedFileMoveItAsideOnce) {
  constexpr int kProcesses = 6;
  TempDir dir;
  testing::write_file(dir / "tune.db", std::string(20'000, 'x'));
  EXPECT_EQ(run_processes(kProcesses,
                          [&](int writer) {
                            const auto store = TuneStore::open(dir / "tune.db");
                            write_winners(*store, writer);
                          }),
            0);
  expect_all_winners(*TuneStore::open(dir / "tune.db"), kProcesses);
  EXPECT_EQ(testing::moved_aside(dir.path()).size(), 1u);
}

TEST(TuneStoreConcurrency, AKilledWriterLeavesWholeWinnersAndNoLock) {
  TempDir dir;
  TuneStore::open(dir / "tune.db");
  const pid_t child = ::fork();
  if (child == 0) {
    const auto store = TuneStore::open(dir / "tune.db");
    for (int round = 0;; ++round) write_winners(*store, round);
  }
  while (TuneStore::open(dir / "tune.db")->winners().size() < 5) ::usleep(1000);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const auto store = TuneStore::open(dir / "tune.db");
  for (const auto& [gpu, winner] : store->winners()) {
    EXPECT_EQ(winner.measurements.size(), 2u);
    const auto hit = store->find_winner(sample_gpu(), winner.problem, sample_toolchain());
    ASSERT_TRUE(hit);
    EXPECT_EQ(hit->match, Match::kExact);
  }
  store->put_winner(sample_gpu(), winner_of(0, 0));
}

}  // namespace
}  // namespace attune
