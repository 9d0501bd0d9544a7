// Many processes on one cache: what is compiled how often, and what remains when they are killed.
// ATTUNE_LONG_TESTS=1 repeats the cold start 50 times and kills for 10 minutes.
#include <atomic>
#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "tests/cache/fixtures.h"
#include "tests/support/processes.h"
#include "tests/tuner/fake_attention.h"
#include "tuner/space.h"

namespace attune {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::SharedValue;

constexpr int kProcesses = 16;
constexpr std::size_t kVariants = 12;

const Problem kProblem = Problem::parse("decode/b1/q1/kv1-64/h2x1/d64/contiguous/bf16");

std::set<Variant> variants() {
  std::set<Variant> all;
  for (const Candidate& one : candidate_space(kProblem, fake_device_info()).kept) {
    if (all.size() < kVariants) all.insert(one.variant(kProblem));
  }
  return all;
}

// Takes some time and counts what it compiles, by the order of the symbols.
class CountingCompiles : public FakeCompiles {
 public:
  CountingCompiles(std::atomic<int>* counts, std::chrono::milliseconds duration) {
    on_compile = [=](const CompileJob& job, CompileOutcome*) {
      std::size_t idx = 0;
      for (const Variant& variant : variants()) {
        if (attention_symbols(variant).split == job.source.split_symbol) break;
        ++idx;
      }
      ++counts[idx];
      std::this_thread::sleep_for(duration);
    };
  }
};

struct ColdStart {
  std::atomic<int> compiles[kVariants + 1];
  std::atomic<int> warnings;
  std::atomic<int> waits;
};

// What a process does at its start: gets every binary, stores winners and is served.
void start_cold(const std::filesystem::path& path, ColdStart& shared) {
  const auto store =
      TuneStore::open_or_memory(path, [&](const std::string&) { ++shared.warnings; });
  CountingCompiles compiles(shared.compiles, 3ms);
  CompileStage stage(*store, compiles, "sm_90a");
  const auto progress = [&](const std::string& what, std::size_t, std::size_t) {
    if (what.starts_with("waiting for process ")) ++shared.waits;
  };
  stage.run(variants(), false, false, progress, {});
  for (const Variant& variant : variants()) {
    if (stage.find(variant) == nullptr) throw Error("no binary", variant.text());
  }
  store->put_winner(testing::sample_gpu(), testing::sample_winner());
  if (!testing::serves(*store)) throw Error("not served");
  if (store->is_in_memory()) throw Error("in memory");
}

TEST(ColdStart, SixteenProcessesCompileEachCandidateOnce) {
  const int num_rounds = testing::is_long_run() ? 50 : 3;
  int most = 0, total = 0, num_waits = 0;
  for (int round = 0; round < num_rounds; ++round) {
    testing::TempDir dir;
    SharedValue<ColdStart> shared;
    const auto path = dir / "a/b/tune.db";
    ASSERT_EQ(testing::run_processes(kProcesses, [&](int) { start_cold(path, *shared); }), 0);
    EXPECT_EQ(shared->warnings, 0);
    for (std::size_t i = 0; i < variants().size(); ++i) {
      most = std::max<int>(most, shared->compiles[i]);
      total += shared->compiles[i];
    }
    num_waits += shared->waits;
    const auto store = TuneStore::open(path);
    EXPECT_EQ(store->binaries().size(), variants().size() + 1);
    EXPECT_TRUE(store->verify().problems.empty());
  }
  EXPECT_EQ(most, 1);
  EXPECT_EQ(total, num_rounds * static_cast<int>(variants().size()));
  EXPECT_GT(num_waits, 0);
  RecordProperty("rounds", num_rounds);
  RecordProperty("most_compiles_of_a_candidate", most);
}

TEST(ColdStart, ThreadsCompileEachCandidateOnceToo) {
  constexpr int kThreads = 8;
  testing::TempDir dir;
  SharedValue<ColdStart> shared;
  const auto path = dir / "tune.db";
  const auto common = TuneStore::open(path);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const auto own = i % 2 == 0 ? nullptr : TuneStore::open(path);
      CountingCompiles compiles(shared->compiles, 3ms);
      CompileStage stage(own ? *own : *common, compiles, "sm_90a");
      stage.run(variants(), false, false, {}, {});
      for (const Variant& variant : variants()) EXPECT_NE(stage.find(variant), nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < variants().size(); ++i) EXPECT_EQ(shared->compiles[i], 1) << i;
}

// Compiles that take their time: who has claimed all at once would leave nothing for the other.
TEST(ColdStart, TwoProcessesShareTheWork) {
  constexpr int kTwo = 2;
  struct Shares {
    std::atomic<int> begun, compiles[kTwo];
    ColdStart all;
  };
  testing::TempDir dir;
  SharedValue<Shares> shared;
  const auto path = dir / "tune.db";
  const int num_failed = testing::run_processes(kTwo, [&](int process) {
    const auto store = TuneStore::open(path);
    ++shared->begun;
    while (shared->begun < kTwo) std::this_thread::sleep_for(100us);
    CountingCompiles compiles(shared->all.compiles, 20ms);
    CompileStage stage(*store, compiles, "sm_90a");
    stage.run(variants(), false, false, {}, {});
    shared->compiles[process] = static_cast<int>(stage.num_compiled());
  });
  EXPECT_EQ(num_failed, 0);
  const int total = static_cast<int>(variants().size());
  EXPECT_EQ(shared->compiles[0] + shared->compiles[1], total);
  for (const auto& share : shared->compiles) EXPECT_GE(share, total / 4);
  for (int i = 0; i < total; ++i) EXPECT_EQ(shared->all.compiles[i], 1) << i;
}

// A process that compiles one candidate for ever.
pid_t start_stuck(const std::filesystem::path& path, ColdStart& shared) {
  const pid_t child = testing::start_process([&] {
    const auto store = TuneStore::open(path);
    CountingCompiles compiles(shared.compiles, 1h);
    CompileStage(*store, compiles, "sm_90a").run(variants(), false, false, {}, {});
  });
  while (shared.compiles[0] == 0) std::this_thread::sleep_for(1ms);
  return child;
}

TEST(ColdStart, SurvivorsOfAKilledCompilerGoOnAtOnce) {
  testing::TempDir dir;
  const auto path = dir / "tune.db";
  SharedValue<ColdStart> shared;
  const pid_t stuck = start_stuck(path, *shared);
  std::thread killer([&] {
    while (shared->waits < 4) std::this_thread::sleep_for(1ms);
    ::kill(stuck, SIGKILL);
  });
  const auto start = Clock::now();
  EXPECT_EQ(testing::run_processes(4, [&](int) { start_cold(path, *shared); }), 0);
  EXPECT_LT(Clock::now() - start, 5s);
  killer.join();
  EXPECT_FALSE(testing::ended_well(stuck));
  EXPECT_EQ(shared->warnings, 0);
  for (std::size_t i = 1; i < variants().size(); ++i) EXPECT_EQ(shared->compiles[i], 1) << i;
  EXPECT_EQ(shared->compiles[0], 2);
}

TEST(ColdStart, WhoPublishesNothingIsNotWaitedForForEver) {
  testing::TempDir dir;
  SharedValue<ColdStart> shared;
  const pid_t stuck = start_stuck(dir / "tune.db", *shared);
  const auto store = TuneStore::open(dir / "tune.db");
  CountingCompiles compiles(shared->compiles, 1ms);
  CompileStage stage(*store, compiles, "sm_90a");
  stage.patience = 300ms;
  std::string waited_for;
  const auto start = Clock::now();
  stage.run(variants(), false, false,
            [&](const std::string& what, std::size_t, std::size_t) {
              if (what.starts_with("waiting for ")) waited_for = what;
            },
            {});
  EXPECT_GE(Clock::now() - start, 300ms);
  EXPECT_NE(waited_for.find("process " + std::to_string(stuck) + " on "), std::string::npos);
  EXPECT_EQ(stage.num_compiled(), variants().size());
  ::kill(stuck, SIGKILL);
  testing::ended_well(stuck);
}

TEST(ColdStart, AStopEndsAWait) {
  testing::TempDir dir;
  SharedValue<ColdStart> shared;
  const pid_t stuck = start_stuck(dir / "tune.db", *shared);
  const auto store = TuneStore::open(dir / "tune.db");
  CountingCompiles compiles(shared->compiles, 1ms);
  CompileStage stage(*store, compiles, "sm_90a");
  const auto start = Clock::now();
  stage.run(variants(), false, false, {}, [&] { return Clock::now() - start > 100ms; });
  EXPECT_LT(Clock::now() - start, 2s);
  EXPECT_EQ(stage.num_compiled(), variants().size() - 1);
  ::kill(stuck, SIGKILL);
  testing::ended_well(stuck);
}

constexpr int kWriters = 8;
constexpr int kProblemsEach = 6;

struct Killing {
  std::atomic<int> admitted[kWriters][kProblemsEach];  // last generation whose put returned
  std::atomic<int> warnings;
  std::atomic<int> requests;
};

Winner winner_of(int writer, int idx, int generation) {
  Problem problem = testing::sample_problem();
  problem.batch = 1 + writer * kProblemsEach + idx;
  Winner winner = testing::sample_winner(problem);
  winner.candidate.split_cap = generation;
  winner.binary = testing::sample_binary(std::to_string(writer) + "-" + std::to_string(idx) + "-" +
                                         std::to_string(generation));
  return winner;
}

// Whether the stored winner is whole and at least of that generation.
bool is_kept(const TuneStore& store, int writer, int idx, int generation) {
  const Winner asked = winner_of(writer, idx, generation);
  const auto hit = store.find_winner(testing::sample_gpu(), asked.problem, asked.toolchain);
  if (!hit || hit->match != Match::kExact) return false;
  const int found = hit->winner.candidate.split_cap;
  return found >= generation &&
         hit->winner.binary.cubin == winner_of(writer, idx, found).binary.cubin &&
         hit->winner.measurements.size() == 2;
}

// Opens, writes and reads until it is killed.
void write_for_ever(const std::filesystem::path& path, int writer, Killing& shared) {
  for (;;) {
    const auto store = TuneStore::open_or_memory(
        path, [&](const std::string&) { ++shared.warnings; }, {.max_bytes = 64 << 10});
    for (int i = 0; i < kProblemsEach; ++i) {
      const int idx = shared.requests % kProblemsEach;  // not always the first after a kill
      const int generation = shared.admitted[writer][idx] + 1;
      store->put_winner(testing::sample_gpu(), winner_of(writer, idx, generation));
      shared.admitted[writer][idx] = generation;
      if (!is_kept(*store, writer, idx, generation)) throw Error("not served");
      ++shared.requests;
    }
    if (store->is_in_memory()) throw Error("in memory");
  }
}

TEST(ColdStart, KilledAtAnyMomentLosesNothingThatWasAdmitted) {
  const auto duration = testing::is_long_run() ? std::chrono::seconds(600) : 3s;
  testing::TempDir dir;
  const auto path = dir / "tune.db";
  SharedValue<Killing> shared;
  std::vector<pid_t> writers(kWriters);
  const auto start = [&](int writer) {
    writers[static_cast<std::size_t>(writer)] =
        testing::start_process([&] { write_for_ever(path, writer, *shared); });
  };
  for (int writer = 0; writer < kWriters; ++writer) start(writer);
  std::mt19937 random(7);
  int num_kills = 0;
  for (const auto end = Clock::now() + duration; Clock::now() < end; ++num_kills) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    const int victim = static_cast<int>(random() % kWriters);
    const pid_t pid = writers[static_cast<std::size_t>(victim)];
    ::kill(pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "a request failed before the kill";
    start(victim);
  }
  for (const pid_t pid : writers) ::kill(pid, SIGKILL);
  for (const pid_t pid : writers) testing::ended_well(pid);
  EXPECT_EQ(shared->warnings, 0);
  EXPECT_GT(shared->requests, 50);
  const auto store = TuneStore::open(path);
  for (int writer = 0; writer < kWriters; ++writer) {
    for (int idx = 0; idx < kProblemsEach; ++idx) {
      const int generation = shared->admitted[writer][idx];
      EXPECT_TRUE(generation == 0 || is_kept(*store, writer, idx, generation)) << writer << idx;
    }
  }
  EXPECT_TRUE(store->verify().problems.empty());
  RecordProperty("kills", num_kills);
  RecordProperty("requests", shared->requests);
}

// Somebody cleans up under them. What is in a deleted file is lost, no request is.
TEST(ColdStart, DeletedFilesNeitherHangNorCrashAnybody) {
  testing::TempDir dir;
  const auto path = dir / "tune.db";
  SharedValue<Killing> shared;
  std::atomic<bool> ended = false;
  std::thread cleaner([&] {
    std::mt19937 random(11);
    const char* suffixes[] = {"", "-wal", "-shm", "-claims"};
    while (!ended) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 10'000));
      ::unlink((path.string() + suffixes[random() % 4]).c_str());
    }
  });
  const int num_failed = testing::run_processes(kWriters, [&](int writer) {
    for (int round = 1; round <= 3; ++round) {
      const auto store =
          TuneStore::open_or_memory(path, [&](const std::string&) { ++shared->warnings; });
      for (int idx = 0; idx < kProblemsEach; ++idx) {
        const Winner winner = winner_of(writer, idx, round);
        store->put_winner(testing::sample_gpu(), winner);
        store->find_winner(testing::sample_gpu(), winner.problem, winner.toolchain);
        ++shared->requests;
      }
    }
  });
  ended = true;
  cleaner.join();
  EXPECT_EQ(num_failed, 0);
  EXPECT_EQ(shared->requests, kWriters * 3 * kProblemsEach);
  const auto store = TuneStore::open(path);
  store->put_winner(testing::sample_gpu(), testing::sample_winner());
  EXPECT_TRUE(testing::serves(*store));
  EXPECT_TRUE(store->verify().problems.empty());
}

}  // namespace
}  // namespace attune
