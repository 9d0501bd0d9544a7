// The size cap, and what is pruned on demand.
#include <gtest/gtest.h>

#include "cache/eviction.h"
#include "tests/cache/fixtures.h"

namespace attune {
namespace {

using testing::sample_binary;
using testing::sample_gpu;
using testing::sample_problem;
using testing::sample_toolchain;
using testing::sample_winner;
using testing::Warnings;

// Of 2000 bytes that do not compress.
Binary bulky(const std::string& name) {
  Binary binary = sample_binary(name);
  binary.cubin.clear();
  for (int i = 0; binary.cubin.size() < 2000; ++i) {
    const std::string text = digest_of(name + std::to_string(i)).text();
    const Digest digest = Digest::parse(text).value();
    for (int byte = 0; byte < 8; ++byte) {
      binary.cubin.push_back(static_cast<std::byte>(digest.high >> (8 * byte)));
      binary.cubin.push_back(static_cast<std::byte>(digest.low >> (8 * byte)));
    }
  }
  binary.content = digest_of(binary.cubin);
  return binary;
}

Winner bulky_winner(int batch, const std::string& name) {
  Problem problem = sample_problem();
  problem.batch = batch;
  Winner winner = sample_winner(problem);
  winner.binary = bulky(name);
  return winner;
}

class SizeCap : public ::testing::Test {
 protected:
  void open(std::size_t max_bytes) {
    store_.reset();
    store_ = TuneStore::open(dir_ / "tune.db", warnings_.sink(), {.max_bytes = max_bytes});
  }
  std::set<std::string> kept(const std::vector<std::string>& names) const {
    std::set<std::string> found;
    for (const std::string& name : names) {
      if (store_->find_binary(bulky(name).key)) found.insert(name);
    }
    return found;
  }
  void age(const std::string& name, int days) {
    testing::tamper(dir_ / "tune.db", "UPDATE binaries SET used_at = used_at - " +
                                          std::to_string(days * kUseIntervalS) + " WHERE key = '" +
                                          bulky(name).key.text() + "'");
  }
  std::int64_t used_at(const std::string& name) {
    SQLite::Database db((dir_ / "tune.db").string());
    return db
        .execAndGet("SELECT used_at FROM binaries WHERE key = '" + bulky(name).key.text() + "'")
        .getInt64();
  }

  testing::TempDir dir_;
  Warnings warnings_;
  std::unique_ptr<TuneStore> store_;
};

TEST_F(SizeCap, NoneKeepsEverything) {
  open(0);
  for (int i = 0; i < 20; ++i) store_->put_binary(bulky(std::to_string(i)), "v");
  EXPECT_EQ(store_->binaries().size(), 20u);
}

TEST_F(SizeCap, TheLongestUnusedGoFirst) {
  open(7000);
  for (const char* name : {"a", "b", "c"}) store_->put_binary(bulky(name), "v");
  age("a", 3);
  age("b", 5);
  store_->put_binary(bulky("d"), "v");
  EXPECT_EQ(kept({"a", "b", "c", "d"}), (std::set<std::string>{"a", "c", "d"}));
  EXPECT_EQ(warnings_.count(), 0u);
}

TEST_F(SizeCap, AUseMovesABinaryBack) {
  open(7000);
  for (const char* name : {"a", "b", "c"}) store_->put_binary(bulky(name), "v");
  age("a", 5);
  age("b", 3);
  ASSERT_TRUE(store_->find_binary(bulky("a").key));
  store_->put_binary(bulky("d"), "v");
  EXPECT_EQ(kept({"a", "b", "c", "d"}), (std::set<std::string>{"a", "c", "d"}));
}

TEST_F(SizeCap, UsesAreWrittenOnceADayAndAtTheEnd) {
  open(0);
  store_->put_binary(bulky("a"), "v");
  const std::int64_t put = used_at("a");
  age("a", 2);
  store_->find_binary(bulky("a").key);
  EXPECT_LT(used_at("a"), put);  // a look-up writes nothing
  open(0);                       // the end of the store that saw the use
  EXPECT_GE(used_at("a"), put);
  // A use on the same day is not worth a write.
  const std::string before = testing::read_file(dir_ / "tune.db");
  for (int i = 0; i < 3; ++i) store_->find_binary(bulky("a").key);
  store_.reset();
  EXPECT_EQ(testing::read_file(dir_ / "tune.db"), before);
}

TEST_F(SizeCap, AServedWinnerCountsAsUsed) {
  open(0);
  store_->put_winner(sample_gpu(), bulky_winner(1, "w"));
  age("w", 9);
  const auto before = used_at("w");
  ASSERT_TRUE(store_->find_winner(sample_gpu(), bulky_winner(1, "w").problem, sample_toolchain()));
  store_.reset();
  EXPECT_GT(used_at("w"), before);
}

TEST_F(SizeCap, WinnersAreKeptBeforeAnythingElse) {
  open(7000);
  store_->put_winner(sample_gpu(), bulky_winner(1, "w1"));
  store_->put_winner(sample_gpu(), bulky_winner(2, "w2"));
  age("w1", 100);
  age("w2", 100);
  for (const char* name : {"a", "b", "c"}) store_->put_binary(bulky(name), "v");
  EXPECT_EQ(kept({"w1", "w2", "a", "b", "c"}), (std::set<std::string>{"w1", "w2", "c"}));
  EXPECT_EQ(store_->winners().size(), 2u);
  EXPECT_EQ(warnings_.count(), 0u);
}

TEST_F(SizeCap, WinnersOfAnOlderToolchainGoBeforeTheCurrentOnes) {
  open(7000);
  Winner older = bulky_winner(1, "older");
  older.toolchain.compiler_version = "12.9";
  older.created_at = "2025-01-01T00:00:00Z";
  store_->put_winner(sample_gpu(), older);
  store_->put_winner(sample_gpu(), bulky_winner(1, "newer"));
  age("newer", 100);
  store_->put_winner(sample_gpu(), bulky_winner(2, "second"));
  store_->put_winner(sample_gpu(), bulky_winner(3, "third"));
  EXPECT_EQ(kept({"older", "newer", "second", "third"}),
            (std::set<std::string>{"newer", "second", "third"}));
  EXPECT_FALSE(store_->find_winner(sample_gpu(), older.problem, older.toolchain));
}

TEST_F(SizeCap, SmallerThanTheWinnersDropsTheLongestUnusedOfThemAndSaysSo) {
  open(5000);
  for (int i = 1; i <= 4; ++i) {
    store_->put_winner(sample_gpu(), bulky_winner(i, "w" + std::to_string(i)));
  }
  EXPECT_EQ(kept({"w1", "w2", "w3", "w4"}), (std::set<std::string>{"w3", "w4"}));
  ASSERT_EQ(warnings_.count(), 1u);
  EXPECT_NE(warnings_.texts()[0].find("winners do not fit the tuning cache"), std::string::npos);
  EXPECT_TRUE(store_->verify().problems.empty());
}

TEST_F(SizeCap, WhatWasJustPutStays) {
  open(10);
  store_->put_winner(sample_gpu(), bulky_winner(1, "w"));
  EXPECT_EQ(kept({"w"}), std::set<std::string>{"w"});
}

class Prune : public SizeCap {
 protected:
  Prune() {
    open(0);
    store_->put_winner(sample_gpu(), bulky_winner(1, "one"));
    Winner two = bulky_winner(2, "two");
    two.toolchain.template_digest = digest_of("older template");
    store_->put_winner(other_, two);
    store_->put_binary(bulky("loose"), "v");
    store_->put_compile_failure(digest_of("bad"), "v", "sm_90a", "13.0", "error");
  }
  DeviceInfo other_ = [] {
    DeviceInfo gpu = sample_gpu();
    gpu.name = "Other GPU";
    return gpu;
  }();
};

TEST_F(Prune, OfACopyCountsAndChangesNothing) {
  const std::string before = testing::dump(dir_ / "tune.db");
  const auto copy = TuneStore::open_copy(dir_ / "tune.db");
  const PruneResult result = copy->prune({.gpu = "Other", .failures = true});
  EXPECT_EQ(result.winners, 1);
  EXPECT_EQ(result.binaries, 1);
  EXPECT_EQ(result.failures, 1);
  EXPECT_GT(result.bytes, 1900u);
  EXPECT_EQ(testing::dump(dir_ / "tune.db"), before);
  EXPECT_EQ(store_->prune({.gpu = "Other", .failures = true}).winners, 1);
  EXPECT_NE(testing::dump(dir_ / "tune.db"), before);
}

TEST_F(Prune, AnEmptyRequestDeletesNothing) {
  const std::string before = testing::dump(dir_ / "tune.db");
  const PruneResult result = store_->prune({});
  EXPECT_EQ(result.winners + result.binaries + result.measurements, 0);
  EXPECT_EQ(testing::dump(dir_ / "tune.db"), before);
}

TEST_F(Prune, OfAGpuTakesItsResultsAndTheirBinariesAlone) {
  store_->prune({.gpu = "Other"});
  EXPECT_EQ(kept({"one", "two", "loose"}), (std::set<std::string>{"one", "loose"}));
  ASSERT_EQ(store_->winners().size(), 1u);
  EXPECT_EQ(store_->winners()[0].first, sample_gpu().identity());
  EXPECT_TRUE(store_->verify().problems.empty());
}

TEST_F(Prune, OfAProblemKeepsTheTimesThatAnotherRangeNeeds) {
  const Problem problem = bulky_winner(1, "one").problem;
  Winner narrow = bulky_winner(1, "narrow");
  narrow.problem.kv = {1, 64};
  narrow.measurements = {testing::sample_measurement(1, 3)};
  store_->put_winner(sample_gpu(), narrow);
  const PruneResult result = store_->prune({.problem = problem.text()});
  EXPECT_EQ(result.winners, 1);
  EXPECT_EQ(result.measurements, 1);  // at 4096, not at 1
  const auto hit = store_->find_winner(sample_gpu(), narrow.problem, sample_toolchain());
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->winner.measurements.size(), 1u);
}

// A time is filed under the problem at its one length, which may be asked for by itself.
TEST_F(Prune, OfAProblemAtOneLengthKeepsTheTimesThatARangeNeeds) {
  Problem point = bulky_winner(1, "one").problem;
  point.kv = {4096, 4096};
  EXPECT_EQ(store_->prune({.problem = point.text()}).measurements, 0);
}

TEST_F(Prune, OfOlderTemplatesKeepsTheCurrentOnes) {
  store_->prune({.current_templates = {sample_toolchain().template_digest}});
  EXPECT_EQ(kept({"one", "two", "loose"}), (std::set<std::string>{"one", "loose"}));
}

TEST_F(Prune, OfTheUnusedKeepsWinners) {
  age("one", 50);
  age("loose", 50);
  store_->put_binary(bulky("young"), "v");
  const PruneResult result = store_->prune({.unused_days = 30});
  EXPECT_EQ(result.binaries, 1);
  EXPECT_EQ(kept({"one", "two", "loose", "young"}), (std::set<std::string>{"one", "two", "young"}));
}

TEST_F(Prune, ToASizeGivesTheSpaceBack) {
  for (int i = 0; i < 100; ++i) store_->put_binary(bulky("b" + std::to_string(i)), "v");
  store_->export_to(dir_ / "before.db");
  const PruneResult result = store_->prune({.max_bytes = 10'000});
  EXPECT_GT(result.binaries, 95);
  EXPECT_EQ(result.winners, 0);
  store_->export_to(dir_ / "after.db");
  store_.reset();
  EXPECT_LT(std::filesystem::file_size(dir_ / "tune.db"),
            std::filesystem::file_size(dir_ / "before.db") / 2);
}

TEST(Verify, FindsWhatIsBroken) {
  testing::TempDir dir;
  testing::make_cache(dir / "tune.db");
  TuneStore::open(dir / "tune.db")->put_binary(sample_binary("two"), "v");
  const VerifyReport sound = TuneStore::open_unchanged(dir / "tune.db")->verify();
  EXPECT_EQ(sound.num_binaries, 2);
  EXPECT_EQ(sound.num_winners, 1);
  EXPECT_TRUE(sound.problems.empty());
  testing::tamper(dir / "tune.db", "UPDATE binaries SET cubin = x'00' WHERE variant = 'v'");
  testing::tamper(dir / "tune.db", "UPDATE problems SET text = 'nonsense' WHERE kv_max > kv_min");
  testing::tamper(dir / "tune.db", "PRAGMA foreign_keys = OFF; DELETE FROM candidates");
  const VerifyReport broken = TuneStore::open_unchanged(dir / "tune.db")->verify();
  const std::string all = [&] {
    std::string text;
    for (const std::string& problem : broken.problems) text += problem + "\n";
    return text;
  }();
  EXPECT_NE(all.find("does not match its digest: v"), std::string::npos) << all;
  EXPECT_NE(all.find("winners row 1 refers to a row of candidates"), std::string::npos) << all;
}

}  // namespace
}  // namespace attune
