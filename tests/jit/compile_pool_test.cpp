// The pool against worker programs that misbehave; none of them compiles anything.
#include "jit/compile_pool.h"

#include <dirent.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/support/processes.h"
#include "tests/support/temporary_folder.h"

namespace attune {
namespace {

using Seconds = std::chrono::duration<double>;

std::vector<CompileJob> jobs(std::size_t count, std::size_t text_bytes = 10) {
  std::vector<CompileJob> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    all[i].id = i;
    all[i].arch = "sm_80";
    all[i].source.split_symbol = "kernel" + std::to_string(i);
    all[i].source.text = std::string(text_bytes, ' ');
  }
  return all;
}

CompilePoolOptions options(const std::filesystem::path& worker, double timeout_s = 60) {
  CompilePoolOptions all;
  all.num_workers = 2;
  all.timeout_s = timeout_s;
  all.worker_path = worker.string();
  return all;
}

std::vector<CompileOutcome> run(CompilePool* pool, std::vector<CompileJob> work) {
  std::vector<CompileOutcome> outcomes;
  pool->run(std::move(work), [&](CompileOutcome outcome) { outcomes.push_back(outcome); });
  return outcomes;
}

int num_open_files() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

TEST(CompilePool, AsksForAJobWhenAWorkerIsFreeAndAgainWhileOthersRun) {
  const TemporaryFolder folder;
  CompilePool pool(options(folder.write_script("dies", "sleep 0.2\nkill -SEGV $$\n")));
  std::vector<CompileJob> all = jobs(4);
  std::size_t given = 0, done = 0, most_at_once = 0;
  int num_refused = 0;
  const auto next = [&]() -> std::optional<CompileJob> {
    if (given == all.size() || (given == 1 && num_refused++ < 2)) return std::nullopt;
    most_at_once = std::max(most_at_once, given + 1 - done);
    return all[given++];
  };
  EXPECT_EQ(pool.run(next, [&](const CompileOutcome&) { ++done; }), all.size());
  EXPECT_EQ(done, all.size());
  EXPECT_EQ(most_at_once, 2u);
}

TEST(CompilePool, NamesTheEndOfAWorkerThatDies) {
  const TemporaryFolder folder;
  CompilePool pool(options(folder.write_script("dies", "kill -SEGV $$\n")));
  const auto outcomes = run(&pool, jobs(3));
  ASSERT_EQ(outcomes.size(), 3u);
  for (const CompileOutcome& outcome : outcomes) {
    EXPECT_FALSE(outcome.binary.has_value());
    EXPECT_TRUE(outcome.error.starts_with("the compile worker died: signal 11 (")) << outcome.error;
    EXPECT_NE(outcome.error.find("source=kernel" + std::to_string(outcome.id) + " arch=sm_80"),
              std::string::npos);
    EXPECT_FALSE(outcome.is_of_machine);
  }
}

TEST(CompilePool, NamesTheExitStatusOfAWorkerThatLeaves) {
  const TemporaryFolder folder;
  CompilePool pool(options(folder.write_script("leaves", "exit 3\n")));
  const auto outcomes = run(&pool, jobs(1));
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_TRUE(outcomes[0].error.starts_with("the compile worker died: exit status 3"))
      << outcomes[0].error;
  EXPECT_TRUE(outcomes[0].is_of_machine);
}

TEST(CompilePool, EndsAWorkerThatHangsAndWhatItStarted) {
  const TemporaryFolder folder;
  const auto child = folder.path() / "child";
  CompilePool pool(options(
      folder.write_script("hangs", "sleep 1000 &\necho $! > " + child.string() + "\nwait\n"), 0.5));
  const auto begin = std::chrono::steady_clock::now();
  const auto outcomes = run(&pool, jobs(1));
  EXPECT_LT(Seconds(std::chrono::steady_clock::now() - begin).count(), 10);
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].error, "the compile timed out: timeout_s=0.5 source=kernel0 arch=sm_80");
  pid_t pid = 0;
  std::ifstream(child) >> pid;
  ASSERT_GT(pid, 0);
  EXPECT_TRUE(eventually([&] { return !is_running(pid); }, 2));
}

TEST(CompilePool, ACompileThatHangsIsItsOwnFailureAndTheOthersGoOn) {
  const TemporaryFolder folder;
  CompilePool pool(
      options(folder.write_script("first_hangs", "mkdir " + (folder.path() / "first").string() +
                                                     " 2>/dev/null && exec sleep 1000\nexit 3\n"),
              2));
  const auto outcomes = run(&pool, jobs(4));
  ASSERT_EQ(outcomes.size(), 4u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(outcomes[i].error.starts_with("the compile worker died: exit status 3"))
        << outcomes[i].error;
  }
  EXPECT_TRUE(outcomes[3].error.starts_with("the compile timed out")) << outcomes[3].error;
  EXPECT_FALSE(outcomes[3].is_of_machine);  // so it is remembered
}

TEST(CompilePool, SurvivesAWorkerThatTalksNonsense) {
  const TemporaryFolder folder;
  CompilePool pool(options(folder.write_script("talks", "echo this is no message; sleep 1000\n")));
  const auto outcomes = run(&pool, jobs(2));
  ASSERT_EQ(outcomes.size(), 2u);
  for (const CompileOutcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.error.starts_with("cannot read a worker's message")) << outcome.error;
  }
}

TEST(CompilePool, SurvivesAWorkerThatNeverReadsALargeJob) {
  const TemporaryFolder folder;
  CompilePool pool(options(folder.write_script("deaf", "sleep 1000\n"), 0.3));
  const auto outcomes = run(&pool, jobs(1, std::size_t{8} << 20));
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_TRUE(outcomes[0].error.starts_with("the compile timed out")) << outcomes[0].error;
}

TEST(CompilePool, StopsWhenAsked) {
  const TemporaryFolder folder;
  CompilePool pool(options(folder.write_script("hangs", "sleep 1000\n")));
  const auto begin = std::chrono::steady_clock::now();
  int polls = 0;
  const std::size_t done = pool.run(
      jobs(5), [](const CompileOutcome&) { FAIL() << "nothing can be done"; },
      [&] { return ++polls > 2; });
  EXPECT_EQ(done, 0u);
  EXPECT_LT(Seconds(std::chrono::steady_clock::now() - begin).count(), 5);
}

TEST(CompilePool, PassesAnExceptionOfTheCallerOn) {
  const TemporaryFolder folder;
  CompilePool pool(options(folder.write_script("leaves", "exit 0\n")));
  const auto stop_the_tune = [](const CompileOutcome&) { throw CacheError("the disk is full"); };
  EXPECT_THROW(pool.run(jobs(3), stop_the_tune), CacheError);
}

TEST(CompilePool, DoesNothingWithoutJobs) {
  const TemporaryFolder folder;
  CompilePool pool(options(folder.write_script("leaves", "exit 0\n")));
  EXPECT_TRUE(run(&pool, {}).empty());
}

TEST(CompilePool, LeavesNoFileOpen) {
  const TemporaryFolder folder;
  CompilePool pool(options(folder.write_script("leaves", "exit 0\n")));
  run(&pool, jobs(1));
  const int before = num_open_files();
  run(&pool, jobs(8));
  EXPECT_EQ(num_open_files(), before);
}

TEST(CompilePool, ReportsAProgramThatCannotBeStarted) {
  const TemporaryFolder folder;
  const auto program = folder.write("text", "this is no program");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  CompilePool pool(options(program));
  const auto outcomes = run(&pool, jobs(2));
  ASSERT_EQ(outcomes.size(), 2u);
  EXPECT_NE(outcomes[0].error.find(program.string()), std::string::npos) << outcomes[0].error;
  EXPECT_TRUE(outcomes[0].is_of_machine);
}

TEST(CompilePool, RefusesAMissingProgram) {
  EXPECT_THROW(CompilePool(options("/nowhere/attune-compile-worker")), DeviceUnavailable);
}

TEST(CompilePool, CountsItsWorkersByTheMachineUnlessTold) {
  const TemporaryFolder folder;
  CompilePoolOptions all = options(folder.write_script("leaves", "exit 0\n"));
  EXPECT_EQ(CompilePool(all).num_workers(), 2);
  all.num_workers = 0;
  EXPECT_GE(CompilePool(all).num_workers(), 1);
}

}  // namespace
}  // namespace attune
