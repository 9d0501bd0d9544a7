// What a serving process does when its file system fails it: each fault costs one line, and every
// request is answered.
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/cache/fault_vfs.h"
#include "tests/cache/fixtures.h"
#include "tests/support/processes.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using testing::FaultVfs;
using testing::sample_binary;
using testing::sample_gpu;
using testing::sample_problem;
using testing::sample_toolchain;
using testing::sample_winner;
using testing::Warnings;

Problem other_problem() { return Problem::parse("decode/b4/q1/kv7/h8x1/d64/contiguous/bf16"); }

// A file with the sample winner, which was admitted before the fault.
class FileFaults : public ::testing::Test {
 protected:
  FileFaults() { testing::make_cache(path_); }

  static bool has(const TuneStore& store, const Problem& problem) {
    const auto hit = store.find_winner(sample_gpu(), problem, sample_toolchain());
    return hit && !hit->winner.binary.cubin.empty();
  }

  // What a serving process that tunes does.
  void serve() {
    const auto store = TuneStore::open_or_memory(path_, warnings_.sink());
    EXPECT_TRUE(has(*store, sample_problem()));
    Winner winner = sample_winner(other_problem());
    winner.binary = sample_binary("second");
    store->put_winner(sample_gpu(), winner);
    store->put_binary(sample_binary("third"), "v");
    EXPECT_TRUE(has(*store, other_problem()));
    EXPECT_TRUE(store->find_binary(sample_binary("third").key));
    EXPECT_TRUE(has(*store, sample_problem()));
  }

  void expect_one_line() const {
    ASSERT_EQ(warnings_.count(), 1u) << (warnings_.count() > 1 ? warnings_.texts()[1] : "");
    EXPECT_EQ(warnings_.texts()[0].find('\n'), std::string::npos) << warnings_.texts()[0];
    EXPECT_NE(warnings_.texts()[0].find(path_.string()), std::string::npos) << warnings_.texts()[0];
  }

  // The file as the next process finds it, without the fault.
  void expect_sound_afterwards() {
    const auto store = TuneStore::open(path_);
    EXPECT_TRUE(has(*store, sample_problem()));
    EXPECT_TRUE(store->verify().problems.empty());
    store->put_binary(sample_binary("later"), "v");
    EXPECT_TRUE(testing::files_with(dir_.path(), "damaged").empty());
  }

  testing::TempDir dir_;
  fs::path path_ = dir_ / "tune.db";
  Warnings warnings_;
};

TEST_F(FileFaults, NoneLeavesNoLine) {
  FaultVfs faults;
  serve();
  EXPECT_GT(faults.num_writes, 10);
  EXPECT_EQ(warnings_.count(), 0u);
}

class FailedWrite : public FileFaults, public ::testing::WithParamInterface<int> {};

// Each write in turn is the first that fails, and all after it do; of a full disk at every number.
TEST_P(FailedWrite, AtAnyNumberCostsOneLineAndNoRequest) {
  const std::string bytes = testing::read_file(path_);
  const int step = GetParam() == SQLITE_FULL || testing::is_long_run() ? 1 : 5;
  bool failed = true;
  int num_failed = 0;
  for (int from = 1; failed; from += step) {
    SCOPED_TRACE(from);
    ASSERT_LT(from, 500);
    for (const char* suffix : {"-wal", "-shm", "-journal"}) fs::remove(path_.string() + suffix);
    testing::write_file(path_, bytes);
    warnings_.clear();
    {
      FaultVfs faults;
      faults.fail_from = from;
      faults.write_error = GetParam();
      serve();
      failed = faults.has_failed();
    }
    // The last writes are those of closing, of which nobody needs to hear.
    if (warnings_.count() > 0) {
      expect_one_line();
      ++num_failed;
    }
    expect_sound_afterwards();
    if (HasFailure()) break;
  }
  EXPECT_GT(num_failed, 5 / step);
}
INSTANTIATE_TEST_SUITE_P(OfKind, FailedWrite,
                         ::testing::Values(SQLITE_FULL, SQLITE_READONLY, SQLITE_IOERR_WRITE));

TEST_F(FileFaults, ALockThatNobodyGivesBackEndsInMemoryOverTheFile) {
  {
    FaultVfs faults;
    const auto store = TuneStore::open_or_memory(path_, warnings_.sink());
    faults.lock_error = SQLITE_BUSY;
    store->put_binary(sample_binary("third"), "v");
    EXPECT_TRUE(store->is_in_memory());
    EXPECT_TRUE(store->find_binary(sample_binary("third").key));
    EXPECT_TRUE(has(*store, sample_problem()));
  }
  expect_one_line();
  EXPECT_NE(warnings_.texts()[0].find("another process holds it"), std::string::npos);
  expect_sound_afterwards();
}

TEST_F(FileFaults, WithoutLocksTheCacheIsInMemory) {
  {
    FaultVfs faults;
    faults.shared_lock_error = SQLITE_IOERR_LOCK;
    const auto store = TuneStore::open_or_memory(path_, warnings_.sink());
    EXPECT_TRUE(store->is_in_memory());
    store->put_winner(sample_gpu(), sample_winner());
    EXPECT_TRUE(has(*store, sample_problem()));
  }
  expect_one_line();
  expect_sound_afterwards();
}

TEST_F(FileFaults, TheFileBeneathAStoreInMemoryIsNoSecondBase) {
  FaultVfs faults;
  faults.shared_lock_error = SQLITE_IOERR_LOCK;
  const auto store = TuneStore::open_or_memory(path_, warnings_.sink(), {.bases = {path_}});
  EXPECT_TRUE(store->is_in_memory());
  EXPECT_EQ(store->base_paths(), std::vector<std::string>{path_.string()});
  EXPECT_TRUE(has(*store, sample_problem()));
}

TEST_F(FileFaults, WithoutSharedMemoryARollbackJournalDoesInSilence) {
  {
    FaultVfs faults;
    faults.shared_memory_error = SQLITE_IOERR_SHMMAP;
    serve();
  }
  EXPECT_EQ(warnings_.count(), 0u);
  EXPECT_TRUE(has(*TuneStore::open(path_), other_problem()));
  expect_sound_afterwards();
}

TEST_F(FileFaults, AFileThatCannotBeReadAnyMoreIsLeftForMemory) {
  {
    FaultVfs faults;
    const auto store = TuneStore::open_or_memory(path_, warnings_.sink());
    faults.read_error = SQLITE_IOERR_READ;
    EXPECT_FALSE(has(*store, sample_problem()));
    store->put_winner(sample_gpu(), sample_winner());
    EXPECT_TRUE(has(*store, sample_problem()));
  }
  expect_one_line();
  expect_sound_afterwards();
}

// Somebody cleans up under a running process, at every moment of its writes.
TEST_F(FileFaults, FilesThatVanishCostNoRequest) {
  const std::vector<std::vector<const char*>> cleanups = {
      {""}, {"-wal"}, {"-shm"}, {"-wal", "-shm"}, {"", "-wal", "-shm", "-claims"}};
  for (const auto& suffixes : cleanups) {
    for (int at = 1; at < 40; at += 3) {
      SCOPED_TRACE(std::string(suffixes.front()) + " at " + std::to_string(at));
      FaultVfs faults;
      faults.on_write = [&](int number) {
        if (number != at) return;
        for (const char* suffix : suffixes) ::unlink((path_.string() + suffix).c_str());
      };
      Warnings warnings;
      const auto store = TuneStore::open_or_memory(path_, warnings.sink());
      for (int i = 0; i < 4; ++i) {
        const Binary binary = sample_binary(std::to_string(i));
        store->put_binary(binary, "v");
        EXPECT_TRUE(store->find_binary(binary.key)) << i;
      }
      for (const std::string& text : warnings.texts()) {
        EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      }
      EXPECT_LE(warnings.count(), 2u);
    }
  }
  const auto store = TuneStore::open(path_);
  store->put_binary(sample_binary("later"), "v");
  EXPECT_TRUE(store->verify().problems.empty());
}

// Another process moves the file aside while this one opens it, at every file that SQLite opens for
// that, and may have its own fresh file in use already.
TEST_F(FileFaults, AFileThatIsMovedWhileItIsOpenedCostsNothing) {
  int last = 0;
  for (const bool is_used_by_another : {false, true}) {
    for (int at = 1; at == 1 || at <= last; ++at) {
      SCOPED_TRACE(at);
      const testing::TempDir dir;
      const fs::path path = dir / "tune.db";
      testing::make_cache(path);
      FaultVfs faults;
      std::unique_ptr<TuneStore> another;
      faults.on_open = [&](int number) {
        if (number != at) return;
        fs::rename(path, dir / "aside");
        if (is_used_by_another) another = TuneStore::open(path);
      };
      Warnings warnings;
      const auto store = TuneStore::open(path, warnings.sink());
      last = faults.num_opens;
      faults.on_open = {};
      store->put_winner(sample_gpu(), sample_winner());
      EXPECT_TRUE(!another || has(*another, sample_problem()));
      EXPECT_TRUE(has(*TuneStore::open(path), sample_problem()));
      EXPECT_EQ(warnings.count(), 0u);
    }
  }
  EXPECT_GE(last, 2);
}

}  // namespace
}  // namespace attune
