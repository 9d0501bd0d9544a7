// Read-only caches beneath the user's file.
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/cache/fixtures.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using testing::files_with;
using testing::make_cache;
using testing::sample_binary;
using testing::sample_gpu;
using testing::sample_measurement;
using testing::sample_problem;
using testing::sample_toolchain;
using testing::sample_winner;
using testing::serves;
using testing::Warnings;

class BaseTiers : public ::testing::Test {
 protected:
  fs::path make_base(const std::string& name, const Winner& winner) {
    TuneStore::open(dir_ / name)->put_winner(sample_gpu(), winner);
    return dir_ / name;
  }
  std::unique_ptr<TuneStore> open(std::vector<fs::path> bases) {
    return TuneStore::open(dir_ / "user/tune.db", warnings_.sink(), {.bases = std::move(bases)});
  }
  static Winner with_cap(int split_cap, const Problem& problem = sample_problem()) {
    Winner winner = sample_winner(problem);
    winner.candidate.split_cap = split_cap;
    return winner;
  }
  static int served_cap(const TuneStore& store, const Problem& problem = sample_problem()) {
    const auto hit = store.find_winner(sample_gpu(), problem, sample_toolchain(), 1);
    return hit ? hit->winner.candidate.split_cap : 0;
  }

  testing::TempDir dir_;
  Warnings warnings_;
};

TEST_F(BaseTiers, ServeWinnersBinariesMeasurementsAndRejections) {
  const fs::path base = make_base("base.db", sample_winner());
  const std::vector<RejectionRecord> rejected = {
      {testing::sample_candidate(), Stage::kTime, {RejectReason::kSlow, "us=9"}}};
  TuneStore::open(base)->put_rejections(sample_gpu(), sample_problem(), sample_toolchain(),
                                        rejected);
  TuneStore::open(base)->put_compile_failure(digest_of("bad"), "v", "sm_90a", "13.0", "error");
  const auto store = open({base});
  EXPECT_TRUE(serves(*store));
  EXPECT_TRUE(store->find_binary(sample_binary().key));
  EXPECT_EQ(store->find_compile_failure(digest_of("bad")), "error");
  EXPECT_EQ(store->winners().size(), 1u);
  EXPECT_EQ(store->binaries().size(), 2u);
  EXPECT_EQ(store->measurements(sample_gpu(), sample_problem(), sample_toolchain()).size(), 1u);
  EXPECT_EQ(store->rejections(sample_gpu(), sample_problem(), sample_toolchain()).size(), 1u);
  EXPECT_EQ(store->compiler_versions(sample_gpu()), std::set<std::string>{"13.0"});
  EXPECT_EQ(store->stats().num_winners, 0);  // of the file alone
  EXPECT_EQ(store->base_paths(), std::vector<std::string>{base.string()});
  EXPECT_EQ(warnings_.count(), 0u);
}

TEST_F(BaseTiers, AddRejectionsOfTunesThatTheFileDoesNotHave) {
  const auto rejection = [](const std::string& detail) {
    return std::vector<RejectionRecord>{
        {testing::sample_candidate(), Stage::kTime, {RejectReason::kSlow, detail}}};
  };
  Problem other = sample_problem();
  other.batch = 7;
  {
    const auto base = TuneStore::open(dir_ / "base.db");
    base->put_rejections(sample_gpu(), sample_problem(), sample_toolchain(), rejection("old"));
    base->put_rejections(sample_gpu(), other, sample_toolchain(), rejection("base"));
  }
  const auto store = open({dir_ / "base.db"});
  EXPECT_EQ(store->all_rejections().size(), 2u);
  store->put_rejections(sample_gpu(), sample_problem(), sample_toolchain(), rejection("new"));
  const auto all = store->all_rejections();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].record.rejection.detail, "new");
  EXPECT_EQ(all[0].gpu_identity, sample_gpu().identity());
  EXPECT_EQ(all[0].toolchain, sample_toolchain());
  EXPECT_FALSE(all[0].created_at.empty());
  EXPECT_EQ(all[1].problem, other);
  EXPECT_EQ(all[1].record.rejection.detail, "base");
}

TEST_F(BaseTiers, AreAskedInOrderAfterTheFile) {
  const fs::path first = make_base("first.db", with_cap(2));
  const fs::path second = make_base("second.db", with_cap(3));
  EXPECT_EQ(served_cap(*open({first, second})), 2);
  EXPECT_EQ(served_cap(*open({second, first})), 3);
  const auto store = open({first, second});
  store->put_winner(sample_gpu(), with_cap(4));
  EXPECT_EQ(served_cap(*store), 4);
  EXPECT_EQ(store->winners().size(), 1u);
}

TEST_F(BaseTiers, AFreshWinnerOfABaseComesBeforeAStaleOneOfTheFile) {
  Winner stale = with_cap(5);
  stale.method = 0;
  const auto store = open({make_base("base.db", with_cap(2))});
  store->put_winner(sample_gpu(), stale);
  EXPECT_EQ(served_cap(*store), 2);
}

TEST_F(BaseTiers, TheTightestOfAllTiersIsTheNearest) {
  Problem wide = sample_problem(), tight = sample_problem(), asked = sample_problem();
  wide.kv = {1, 4096};
  tight.kv = {1, 2048};
  asked.kv = {5, 1000};
  const auto store = open({make_base("base.db", with_cap(2, tight))});
  store->put_winner(sample_gpu(), with_cap(3, wide));
  EXPECT_EQ(served_cap(*store, asked), 2);
}

TEST_F(BaseTiers, ADamagedBinaryOfTheFileIsServedFromABase) {
  const fs::path base = make_base("base.db", sample_winner());
  const auto store = open({base});
  store->put_winner(sample_gpu(), with_cap(7));
  testing::tamper(dir_ / "user/tune.db", "UPDATE binaries SET cubin = x'00'");
  EXPECT_EQ(served_cap(*store), testing::sample_candidate().split_cap);
  EXPECT_EQ(warnings_.count(), 1u);
}

// As in an image: the folder cannot be written, and no lock or log may appear beside the file.
TEST_F(BaseTiers, NeitherChangeNorGetFilesBesideThem) {
  fs::create_directory(dir_ / "image");
  const fs::path base = make_base("image/base.db", sample_winner());
  fs::permissions(base, fs::perms(0444));
  const std::string before = testing::read_file(base);
  {
    const auto store = open({base});
    EXPECT_TRUE(serves(*store));
    store->put_binary(sample_binary("more"), "v");
    store->put_winner(sample_gpu(), with_cap(9));
    EXPECT_EQ(files_with(dir_ / "image", "").size(), 1u);
  }
  EXPECT_EQ(testing::read_file(base), before);
  EXPECT_EQ(files_with(dir_ / "image", "").size(), 1u);
}

TEST_F(BaseTiers, ServeAlsoWhereTheFileCannotBeOpened) {
  const fs::path base = make_base("base.db", sample_winner());
  testing::write_file(dir_ / "file", "");
  const auto store =
      TuneStore::open_or_memory(dir_ / "file/tune.db", warnings_.sink(), {.bases = {base}});
  EXPECT_TRUE(store->is_in_memory());
  EXPECT_TRUE(serves(*store));
  EXPECT_EQ(warnings_.count(), 1u);
}

TEST_F(BaseTiers, ThatCannotBeUsedAreLeftOutWithOneWarningEach) {
  const fs::path good = make_base("good.db", sample_winner());
  testing::write_file(dir_ / "text.db", std::string(5000, 'x'));
  testing::write_file(dir_ / "empty.db", "");
  make_cache(dir_ / "newer.db");
  testing::tamper(dir_ / "newer.db", "PRAGMA user_version = 99");
  make_cache(dir_ / "open.db");
  ::chmod((dir_ / "open.db").c_str(), 0666);
  const auto store = open({dir_ / "missing.db", dir_ / "text.db", dir_ / "empty.db",
                           dir_ / "newer.db", dir_ / "open.db", good});
  EXPECT_TRUE(serves(*store));
  ASSERT_EQ(warnings_.count(), 5u);
  const char* reasons[] = {"missing.db", "text.db", "empty.db", "schema=99", "mode=0666"};
  for (std::size_t i = 0; i < 5; ++i) {
    const std::string warning = warnings_.texts()[i];
    EXPECT_NE(warning.find(reasons[i]), std::string::npos) << warning;
    EXPECT_EQ(warning.find('\n'), std::string::npos) << warning;
  }
  EXPECT_EQ(files_with(dir_.path(), "damaged").size(), 0u);
}

// Read without locks while it is written, it would be seen half changed.
TEST_F(BaseTiers, TheCacheItselfIsNoBase) {
  make_cache(dir_ / "tune.db");
  fs::create_hard_link(dir_ / "tune.db", dir_ / "again.db");
  fs::create_symlink(dir_ / "tune.db", dir_ / "link.db");
  const std::vector<fs::path> same = {dir_ / "tune.db", dir_ / "again.db", dir_ / "link.db"};
  {
    const auto store = TuneStore::open(dir_ / "tune.db", warnings_.sink(), {.bases = same});
    EXPECT_TRUE(store->base_paths().empty());
    EXPECT_TRUE(serves(*store));
    ASSERT_EQ(warnings_.count(), 3u);
    EXPECT_NE(warnings_.texts()[1].find("again.db (this is the cache itself)"), std::string::npos);
  }
  // One that was not there yet.
  EXPECT_TRUE(
      TuneStore::open(dir_ / "new.db", {}, {.bases = {dir_ / "new.db"}})->base_paths().empty());
  EXPECT_TRUE(
      TuneStore::open_unchanged(dir_ / "tune.db", {}, {.bases = same})->base_paths().empty());
}

TEST_F(BaseTiers, ThatAreDamagedInsideAreLeftOutWithOneWarning) {
  const fs::path base = make_base("base.db", sample_winner());
  std::string bytes = testing::read_file(base);
  for (std::size_t at = 4096; at < bytes.size(); ++at) bytes[at] = '\x55';
  const auto store = open({base});  // its first page alone is read until now
  testing::write_file(base, bytes);
  EXPECT_FALSE(serves(*store));
  EXPECT_FALSE(serves(*store));
  ASSERT_EQ(warnings_.count(), 1u);
  EXPECT_NE(warnings_.texts()[0].find("a base of the tuning cache is left out"), std::string::npos);
  store->put_winner(sample_gpu(), sample_winner());
  EXPECT_TRUE(serves(*store));
}

TEST_F(BaseTiers, ALogThatIsNotReadIsTold) {
  const fs::path base = make_base("base.db", sample_winner());
  testing::write_file(base.string() + "-wal", "log");
  EXPECT_TRUE(serves(*open({base})));
  ASSERT_EQ(warnings_.count(), 1u);
  EXPECT_NE(warnings_.texts()[0].find("has a log, whose rows are not seen"), std::string::npos);
}

TEST_F(BaseTiers, AnotherUsersFileIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  const fs::path base = make_base("base.db", sample_winner());
  ASSERT_EQ(::chown(base.c_str(), 12345, 12345), 0);
  EXPECT_FALSE(serves(*open({base})));
  EXPECT_NE(warnings_.texts().at(0).find("owner=12345"), std::string::npos);
}

class Alias : public BaseTiers {
 protected:
  Alias() { sibling_.name = "Sibling GPU"; }
  std::optional<WinnerHit> find(const TuneStore& store) const {
    return store.find_winner(sibling_, sample_problem(), sample_toolchain(), 1);
  }
  std::unique_ptr<TuneStore> open_as(const std::string& alias) {
    return TuneStore::open(dir_ / "user/tune.db", warnings_.sink(),
                           {.bases = {dir_ / "base.db"}, .gpu_alias = alias});
  }
  DeviceInfo sibling_ = sample_gpu();
};

TEST_F(Alias, ServesTheRowsOfAnotherCardAsProvisional) {
  make_base("base.db", sample_winner());
  EXPECT_FALSE(find(*open_as("")));
  for (const std::string& alias : {sample_gpu().name, sample_gpu().identity()}) {
    const auto hit = find(*open_as(alias));
    ASSERT_TRUE(hit) << alias;
    EXPECT_EQ(hit->match, Match::kExact);
    EXPECT_EQ(hit->freshness, Freshness::kOtherGpu);
  }
  EXPECT_FALSE(find(*open_as("Sample")));  // a part of a name names nothing
  EXPECT_EQ(open_as(sample_gpu().name)->compiler_versions(sibling_), std::set<std::string>{"13.0"});
}

TEST_F(Alias, NeverServesAnotherArchitecture) {
  make_base("base.db", sample_winner());
  sibling_.arch = "sm_90";
  EXPECT_FALSE(find(*open_as(sample_gpu().name)));
}

TEST_F(Alias, ComesAfterTheCardsOwnRows) {
  make_base("base.db", sample_winner());
  const auto store = open_as(sample_gpu().name);
  Winner own = with_cap(11);
  store->put_winner(sibling_, own);
  const auto hit = find(*store);
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->winner.candidate.split_cap, 11);
  EXPECT_EQ(hit->freshness, Freshness::kFresh);
}

}  // namespace
}  // namespace attune
