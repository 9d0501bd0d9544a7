// What a store does when its file or folder is not as it should be.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cache/schema.h"
#include "common/error.h"
#include "tests/cache/fixtures.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using testing::cache_error_of;
using testing::files_with;
using testing::make_cache;
using testing::moved_aside;
using testing::sample_binary;
using testing::sample_gpu;
using testing::sample_problem;
using testing::sample_toolchain;
using testing::sample_winner;
using testing::serves;
using testing::TempDir;
using testing::Warnings;

TEST(TuneStoreFile, KeepsItsRowsAcrossOpens) {
  TempDir dir;
  make_cache(dir / "deep/down/tune.db");
  Warnings warnings;
  const auto store = TuneStore::open(dir / "deep/down/tune.db", warnings.sink());
  EXPECT_TRUE(serves(*store));
  EXPECT_EQ(store->path(), (dir / "deep/down/tune.db").string());
  EXPECT_FALSE(store->is_in_memory());
  EXPECT_FALSE(store->is_read_only());
  EXPECT_EQ(warnings.count(), 0u);
  EXPECT_GT(store->stats().file_bytes, 0u);
}

TEST(TuneStoreFile, TextsInARowAreGolden) {
  TempDir dir;
  make_cache(dir / "tune.db");
  SQLite::Database db((dir / "tune.db").string());
  const auto text = [&](const char* sql) { return db.execAndGet(sql).getString(); };
  EXPECT_EQ(text("SELECT text FROM problems WHERE kv_min < kv_max"),
            "verify/b1/q8/kv1-4096/h32x16/d256/w1024/ring/bf16");
  EXPECT_EQ(text("SELECT shape FROM problems WHERE kv_min < kv_max"),
            "verify/b1/q8/kv1/h32x16/d256/w1024/ring/bf16");
  EXPECT_EQ(text("SELECT text FROM candidates"), "splitkv/m16n64s2w8/x33");
  EXPECT_EQ(text("SELECT variant FROM binaries"), "splitkv/d256/ring/bf16/m16n64s2w8");
  EXPECT_EQ(text("SELECT identity FROM gpus"), "Sample GPU|sm_90a|9.0|132|150323855360|0");
  EXPECT_EQ(text("SELECT key FROM binaries"), sample_binary().key.text());
  EXPECT_EQ(text("SELECT created_at FROM winners"), "2026-01-02T03:04:05Z");
  EXPECT_EQ(text("SELECT group_concat(kv_len) FROM (SELECT kv_len FROM measurement_list ORDER BY "
                 "kv_len)"),
            "1,4096");
}

TEST(TuneStoreFile, LeavesAFileThatIsNoCacheWhereItIs) {
  TempDir dir;
  const std::string weights(10'000, 'x');
  testing::write_file(dir / "model.safetensors", weights);
  const auto error =
      cache_error_of([&] { (void)TuneStore::open(dir / "model.safetensors", Warnings().sink()); });
  EXPECT_NE(error.find("the file is not a tuning cache"), std::string::npos) << error;
  EXPECT_EQ(testing::read_file(dir / "model.safetensors"), weights);
  EXPECT_TRUE(moved_aside(dir.path()).empty());
}

TEST(TuneStoreFile, MovesADamagedFileAsideWithOneWarning) {
  TempDir dir;
  make_cache(dir / "good.db");
  const std::string good = testing::read_file(dir / "good.db");
  ASSERT_GT(good.size(), 8192u);
  std::string torn_schema = good;
  torn_schema.replace(100, 2000, std::string(2000, '\x33'));
  const std::vector<std::pair<const char*, std::string>> cases = {
      {"text", "this is no database"},           {"long text", std::string(10'000, 'x')},
      {"zeros", std::string(8192, '\0')},        {"header alone", good.substr(0, 100)},
      {"half", good.substr(0, good.size() / 2)}, {"schema", torn_schema},
  };
  for (const auto& [name, bytes] : cases) {
    TempDir folder;
    testing::write_file(folder / "tune.db", bytes);
    Warnings warnings;
    const auto store = TuneStore::open(folder / "tune.db", warnings.sink());
    EXPECT_FALSE(serves(*store)) << name;
    store->put_winner(sample_gpu(), sample_winner());
    EXPECT_TRUE(serves(*store)) << name;
    const auto aside = moved_aside(folder.path());
    ASSERT_EQ(aside.size(), 1u) << name;
    EXPECT_EQ(testing::read_file(folder / aside[0]), bytes) << name;
    ASSERT_EQ(warnings.count(), 1u) << name;
    EXPECT_NE(warnings.texts()[0].find(aside[0]), std::string::npos) << warnings.texts()[0];
  }
}

TEST(TuneStoreFile, TakesAnEmptyFileAsFresh) {
  TempDir dir;
  testing::write_file(dir / "tune.db", "");
  Warnings warnings;
  const auto store = TuneStore::open(dir / "tune.db", warnings.sink());
  store->put_winner(sample_gpu(), sample_winner());
  EXPECT_TRUE(serves(*store));
  EXPECT_EQ(warnings.count(), 0u);
}

TEST(TuneStoreFile, DamageFoundLaterIsAMissAndAFreshFile) {
  TempDir dir;
  make_cache(dir / "tune.db");
  // All pages but the schema's: opening succeeds, reading rows does not.
  std::string bytes = testing::read_file(dir / "tune.db");
  SQLite::Database db((dir / "tune.db").string());
  const auto page_size = static_cast<std::size_t>(db.execAndGet("PRAGMA page_size").getInt());
  const auto root = static_cast<std::size_t>(
      db.execAndGet("SELECT rootpage FROM sqlite_schema WHERE name = 'winners'").getInt());
  bytes.replace((root - 1) * page_size, page_size, std::string(page_size, '\x77'));
  testing::write_file(dir / "tune.db", bytes);

  Warnings warnings;
  const auto store = TuneStore::open(dir / "tune.db", warnings.sink());
  EXPECT_EQ(warnings.count(), 0u);
  EXPECT_FALSE(serves(*store));
  EXPECT_EQ(warnings.count(), 1u);
  EXPECT_EQ(moved_aside(dir.path()).size(), 1u);
  store->put_winner(sample_gpu(), sample_winner());
  EXPECT_TRUE(serves(*store));
  EXPECT_TRUE(serves(*TuneStore::open(dir / "tune.db")));
}

TEST(TuneStoreFile, ADamagedBlobIsAMissWithAWarningUntilItIsPutAgain) {
  TempDir dir;
  Warnings warnings;
  const auto store = TuneStore::open(dir / "tune.db", warnings.sink());
  store->put_winner(sample_gpu(), sample_winner());
  Problem wider = sample_problem();
  wider.kv.max = 8192;
  Winner second = sample_winner(wider);
  second.binary = sample_binary("second");
  store->put_winner(sample_gpu(), second);
  testing::tamper(dir / "tune.db",
                  "UPDATE binaries SET cubin = (SELECT cubin FROM binaries WHERE id = 2)"
                  " WHERE id = 1");

  EXPECT_FALSE(store->find_binary(sample_binary().key));
  EXPECT_FALSE(store->find_binary(sample_binary().key));
  ASSERT_EQ(warnings.count(), 1u);
  EXPECT_NE(warnings.texts()[0].find(sample_binary().key.text()), std::string::npos);
  // The next best answer serves.
  const auto hit = store->find_winner(sample_gpu(), sample_problem(), sample_toolchain());
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->match, Match::kNearestShape);
  EXPECT_EQ(hit->winner.problem, wider);
  EXPECT_EQ(warnings.count(), 2u);
  EXPECT_EQ(store->winners().size(), 2u);

  store->put_binary(sample_binary(), "splitkv/d256/ring/bf16/m16n64s2w8");
  EXPECT_EQ(store->find_binary(sample_binary().key)->cubin, sample_binary().cubin);
  EXPECT_EQ(store->find_winner(sample_gpu(), sample_problem(), sample_toolchain())->match,
            Match::kExact);
}

TEST(TuneStoreFile, AStoredTextThatCannotBeReadIsAMiss) {
  TempDir dir;
  Warnings warnings;
  const auto store = TuneStore::open(dir / "tune.db", warnings.sink());
  store->put_winner(sample_gpu(), sample_winner());
  testing::tamper(dir / "tune.db", "UPDATE candidates SET text = 'splitkv/3'");
  EXPECT_FALSE(serves(*store));
  EXPECT_TRUE(store->winners().empty());
  EXPECT_TRUE(store->measurements(sample_gpu(), sample_problem(), sample_toolchain()).empty());
  EXPECT_EQ(warnings.count(), 1u);
  testing::tamper(dir / "tune.db", "UPDATE candidates SET text = 'splitkv/m0n64s2w8/x33'");
  EXPECT_FALSE(serves(*store));
}

TEST(TuneStoreFile, RefusesANewerSchemaAndLeavesItAlone) {
  TempDir dir;
  make_cache(dir / "tune.db");
  testing::tamper(dir / "tune.db", "PRAGMA user_version = 7");
  const std::string expected = fmt::format(
      "cannot open tuning cache: path={} schema=7 supported={}; upgrade attune, or choose "
      "another file with --cache",
      (dir / "tune.db").string(), kSchemaVersion);
  EXPECT_EQ(cache_error_of([&] { TuneStore::open(dir / "tune.db"); }), expected);

  Warnings warnings;
  const auto store = TuneStore::open_or_memory(dir / "tune.db", warnings.sink());
  EXPECT_TRUE(store->is_in_memory());
  ASSERT_EQ(warnings.count(), 1u);
  EXPECT_NE(warnings.texts()[0].find("schema=7 supported="), std::string::npos);
  EXPECT_TRUE(files_with(dir.path(), "damaged").empty());
}

TEST(TuneStoreFile, RefusesTheDatabaseOfAnotherProgram) {
  TempDir dir;
  SQLite::Database((dir / "tune.db").string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE)
      .exec("CREATE TABLE bookmarks (url TEXT)");
  EXPECT_THROW(TuneStore::open(dir / "tune.db"), CacheError);
  EXPECT_TRUE(files_with(dir.path(), "damaged").empty());
}

TEST(TuneStoreFile, OpenSaysWhatIsMissingForAnEmptyPath) {
  const std::string message = cache_error_of([] { TuneStore::open({}); });
  EXPECT_NE(message.find("ATTUNE_CACHE_DIR"), std::string::npos) << message;
}

TEST(TuneStoreFile, OpenOrMemoryNeverThrowsForTheEnvironment) {
  TempDir dir;
  testing::write_file(dir / "file", "x");
  fs::create_directory(dir / "folder");
  fs::create_symlink(dir / "nowhere", dir / "link");
  for (const fs::path& path : {fs::path(), dir / "file/tune.db", dir / "folder", dir / "link",
                               fs::path("/proc/attune/tune.db"), fs::path("/dev/null")}) {
    Warnings warnings;
    const auto store = TuneStore::open_or_memory(path, warnings.sink());
    EXPECT_TRUE(store->is_in_memory()) << path;
    EXPECT_EQ(store->path(), ":memory:");
    EXPECT_EQ(warnings.count(), 1u) << path;
    store->put_winner(sample_gpu(), sample_winner());
    EXPECT_TRUE(serves(*store)) << path;
    EXPECT_EQ(warnings.count(), 1u) << path;
    EXPECT_THROW(TuneStore::open(path), CacheError) << path;
  }
}

TEST(TuneStoreFile, WritesToAVanishedFolderGoToANewOne) {
  TempDir dir;
  Warnings warnings;
  const auto store = TuneStore::open(dir / "sub/tune.db", warnings.sink());
  store->put_winner(sample_gpu(), sample_winner());
  fs::remove_all(dir / "sub");
  EXPECT_NO_THROW(serves(*store));
  store->put_winner(sample_gpu(), sample_winner());
  EXPECT_TRUE(serves(*store));
  EXPECT_EQ(warnings.count(), 1u);
  EXPECT_TRUE(serves(*TuneStore::open(dir / "sub/tune.db")));
}

TEST(TuneStoreFile, AVanishedFolderThatCannotComeBackEndsInMemoryOrAnError) {
  TempDir dir;
  Warnings warnings;
  const auto strict = TuneStore::open(dir / "sub/tune.db");
  const auto tolerant = TuneStore::open_or_memory(dir / "sub/tune.db", warnings.sink());
  fs::remove_all(dir / "sub");
  testing::write_file(dir / "sub", "in the way");
  EXPECT_THROW(strict->put_winner(sample_gpu(), sample_winner()), CacheError);
  EXPECT_THROW(strict->put_winner(sample_gpu(), sample_winner()), CacheError);
  EXPECT_FALSE(serves(*strict));
  tolerant->put_winner(sample_gpu(), sample_winner());
  EXPECT_TRUE(tolerant->is_in_memory());
  EXPECT_TRUE(serves(*tolerant));
  EXPECT_EQ(warnings.count(), 2u);  // it is gone; memory only

  fs::remove(dir / "sub");
  strict->put_winner(sample_gpu(), sample_winner());
  EXPECT_TRUE(serves(*strict));
  EXPECT_TRUE(serves(*TuneStore::open(dir / "sub/tune.db")));
}

TEST(TuneStoreFile, LosesNothingWhenItsSideFilesAreDeleted) {
  TempDir dir;
  Warnings warnings;
  const auto store = TuneStore::open(dir / "tune.db", warnings.sink());
  store->put_winner(sample_gpu(), sample_winner());
  fs::remove(dir / "tune.db-wal");
  fs::remove(dir / "tune.db-shm");
  EXPECT_TRUE(serves(*store));
  store->put_binary(sample_binary("next"), "v");
  EXPECT_TRUE(serves(*store));
  EXPECT_EQ(warnings.count(), 1u);
  const auto second = TuneStore::open(dir / "tune.db");
  EXPECT_TRUE(serves(*second));
  EXPECT_TRUE(second->find_binary(sample_binary("next").key));
  EXPECT_TRUE(moved_aside(dir.path()).empty());
}

// As linear layers are to a program from before they were problems: rows of an op and of a family that it
// does not know. It serves what it knows, and a newer one finds the others again.
TEST(TuneStoreFile, RowsOfFormsFromLaterOnAreLeftOutAndKept) {
  TempDir dir;
  const fs::path path = dir / "tune.db";
  Winner later = sample_winner(Problem::parse("linear/m8/n64/k64/store/bf16"));
  later.candidate = Candidate::parse("linear/m8n48s2w8/x1");
  later.binary = sample_binary("two");
  TuneStore::open(path)->put_winner(sample_gpu(), later);
  make_cache(path);
  const auto rename = [&](const std::string& from, const std::string& to) {
    for (const char* column : {"problems SET text", "problems SET shape", "candidates SET text"}) {
      const std::string name = std::string(column).substr(std::string(column).rfind(' ') + 1);
      testing::tamper(path,
                      fmt::format("UPDATE {} = replace({}, '{}/', '{}/')", column, name, from, to));
    }
  };
  rename("linear", "later");
  const std::string rows = testing::dump(path);
  {
    Warnings warnings;
    const auto store = TuneStore::open(path, warnings.sink());
    EXPECT_TRUE(serves(*store));
    EXPECT_EQ(warnings.count(), 0u);
    ASSERT_EQ(store->winners().size(), 1u);
    EXPECT_EQ(store->winners().front().second.problem, sample_problem());
    EXPECT_EQ(store->verify().problems.size(), 1u);
    EXPECT_GE(warnings.count(), 1u);
    const auto target = TuneStore::open(dir / "target.db");
    EXPECT_EQ(target->import_from(path).winners_added, 2);
    EXPECT_TRUE(serves(*target));
    EXPECT_EQ(target->winners().size(), 1u);
  }
  EXPECT_EQ(testing::dump(path), rows);
  rename("later", "linear");
  const auto store = TuneStore::open(path);
  EXPECT_EQ(store->winners().size(), 2u);
  EXPECT_TRUE(store->find_winner(sample_gpu(), later.problem, sample_toolchain()).has_value());
}

TEST(TuneStoreFile, OpensWhileAnotherProcessHasLostItsSideFiles) {
  TempDir dir;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    const auto store = TuneStore::open(dir / "tune.db");
    store->put_winner(sample_gpu(), sample_winner());
    fs::remove(dir / "tune.db-wal");
    fs::remove(dir / "tune.db-shm");
    [[maybe_unused]] const auto written = ::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char ignored;
  ASSERT_EQ(::read(ready[0], &ignored, 1), 1);
  const auto begin = std::chrono::steady_clock::now();
  Warnings warnings;
  const auto store = TuneStore::open_or_memory(dir / "tune.db", warnings.sink());
  store->put_winner(sample_gpu(), sample_winner());
  EXPECT_TRUE(serves(*store));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(warnings.count(), 0u);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace attune
