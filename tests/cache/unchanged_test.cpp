// A look that leaves the file and the files beside it as they are, whoever has it open.
#include <sys/wait.h>

#include <csignal>

#include <gtest/gtest.h>

#include "tests/cache/fixtures.h"
#include "tests/support/processes.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using testing::snapshot;

class Unchanged : public ::testing::Test {
 protected:
  // A process that stores a winner and lives on with the file open.
  pid_t start_writer() {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t child = testing::start_process([&] {
      const auto store = TuneStore::open(path_);
      store->put_winner(testing::sample_gpu(), testing::sample_winner());
      [[maybe_unused]] const auto written = ::write(ready[1], "x", 1);
      for (;;) ::pause();
    });
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return child;
  }
  static void kill(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  void expect_a_look_changes_nothing() {
    const auto before = snapshot(dir_.path());
    {
      const auto store = TuneStore::open_unchanged(path_, warnings_.sink());
      EXPECT_TRUE(testing::serves(*store));
      EXPECT_TRUE(testing::serves(*TuneStore::open_copy(path_, warnings_.sink())));
      EXPECT_TRUE(store->verify().problems.empty());
      EXPECT_EQ(snapshot(dir_.path()), before);
    }
    EXPECT_EQ(snapshot(dir_.path()), before);
    EXPECT_EQ(warnings_.count(), 0u);
  }

  testing::TempDir dir_;
  fs::path path_ = dir_ / "tune.db";
  testing::Warnings warnings_;
};

TEST_F(Unchanged, WhereNobodyHasItOpen) {
  testing::make_cache(path_);
  expect_a_look_changes_nothing();
  EXPECT_EQ(snapshot(dir_.path()).size(), 1u);
}

TEST_F(Unchanged, WhereSomebodyWrites) {
  const pid_t writer = start_writer();
  ASSERT_EQ(snapshot(dir_.path()).size(), 3u);  // the row is in the log alone
  expect_a_look_changes_nothing();
  kill(writer);
}

TEST_F(Unchanged, WhereAKilledWriterLeftALog) {
  kill(start_writer());
  ASSERT_EQ(snapshot(dir_.path()).size(), 3u);
  expect_a_look_changes_nothing();
}

TEST_F(Unchanged, WhereThereIsALogWithoutItsIndex) {
  kill(start_writer());
  fs::remove(path_.string() + "-shm");
  expect_a_look_changes_nothing();
  EXPECT_EQ(snapshot(dir_.path()).size(), 2u);
}

TEST_F(Unchanged, WithARollbackJournal) {
  testing::make_cache(path_);
  testing::tamper(path_, "PRAGMA journal_mode = DELETE");
  expect_a_look_changes_nothing();
}

}  // namespace
}  // namespace attune
