#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/cache/fixtures.h"

namespace attune {
namespace {

namespace fs = std::filesystem;
using testing::cache_error_of;
using testing::sample_binary;
using testing::sample_gpu;
using testing::sample_measurement;
using testing::sample_problem;
using testing::sample_toolchain;
using testing::sample_winner;
using testing::TempDir;
using testing::Warnings;

constexpr const char* kOlder = "2025-01-01T00:00:00Z";
constexpr const char* kNewer = "2027-01-01T00:00:00Z";

Winner winner_of(const char* created_at, int split_cap, const std::string& binary) {
  Winner winner = sample_winner();
  winner.created_at = created_at;
  winner.admission.created_at = created_at;
  for (Measurement& point : winner.measurements) point.created_at = created_at;
  winner.candidate.split_cap = split_cap;
  winner.binary = sample_binary(binary);
  return winner;
}

void expect_counts(const ImportResult& result, int added, int replaced, int kept, int binaries) {
  EXPECT_EQ(result.winners_added, added);
  EXPECT_EQ(result.winners_replaced, replaced);
  EXPECT_EQ(result.winners_kept, kept);
  EXPECT_EQ(result.binaries_added, binaries);
}

class Transfer : public ::testing::Test {
 protected:
  // Writes a cache file with one winner.
  fs::path make_file(const std::string& name, const Winner& winner) {
    TuneStore::open(dir_ / name)->put_winner(sample_gpu(), winner);
    return dir_ / name;
  }

  TempDir dir_;
};

// A binary of the host device is a shared object: an import would run a stranger's code.
TEST_F(Transfer, AnImportLeavesOutWhatTheHostDeviceRan) {
  Winner winner = winner_of(kOlder, 1, "code");
  winner.binary.arch = "host";
  const fs::path shipped = make_file("ship.db", winner);
  const auto store = TuneStore::open(dir_ / "tune.db");
  expect_counts(store->import_from(shipped), 0, 0, 0, 0);
  EXPECT_TRUE(store->binaries().empty());
  EXPECT_TRUE(store->winners().empty());
}

TEST_F(Transfer, AnExportIsOneFileWithEverything) {
  const auto store = TuneStore::open(dir_ / "tune.db");
  store->put_winner(sample_gpu(), sample_winner());
  store->export_to(dir_ / "ship.db");
  EXPECT_EQ(testing::files_with(dir_.path(), "ship").size(), 1u);
  EXPECT_EQ(testing::dump(dir_ / "ship.db"), testing::dump(dir_ / "tune.db"));
  const auto shipped = TuneStore::open(dir_ / "ship.db");
  EXPECT_TRUE(shipped->find_winner(sample_gpu(), sample_problem(), sample_toolchain()));
}

TEST_F(Transfer, ExportsAStoreInMemory) {
  const auto store = TuneStore::open_in_memory();
  store->put_winner(sample_gpu(), sample_winner());
  store->export_to(dir_ / "ship.db");
  EXPECT_EQ(TuneStore::open(dir_ / "ship.db")->winners().size(), 1u);
}

TEST_F(Transfer, AnExportRefusesToOverwrite) {
  const auto store = TuneStore::open_in_memory();
  testing::write_file(dir_ / "ship.db", "precious");
  fs::create_symlink(dir_ / "nowhere", dir_ / "link.db");
  for (const char* name : {"ship.db", "link.db"}) {
    const std::string message = cache_error_of([&] { store->export_to(dir_ / name); });
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_NE(message.find("File exists"), std::string::npos) << message;
  }
  EXPECT_EQ(testing::read_file(dir_ / "ship.db"), "precious");
}

TEST_F(Transfer, AFailedExportLeavesNothing) {
  const auto store = TuneStore::open_in_memory();
  const std::string message = cache_error_of([&] { store->export_to(dir_ / "no/such/ship.db"); });
  EXPECT_NE(message.find("cannot export the tuning cache: path="), std::string::npos) << message;
  EXPECT_TRUE(fs::is_empty(dir_.path()));
}

TEST_F(Transfer, AnImportAddsWhatIsMissing) {
  const fs::path file = make_file("other.db", winner_of(kOlder, 3, "other"));
  const std::string before = testing::dump(file);
  const auto store = TuneStore::open(dir_ / "tune.db");
  expect_counts(store->import_from(file), 1, 0, 0, 1);
  const auto hit = store->find_winner(sample_gpu(), sample_problem(), sample_toolchain());
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->winner.created_at, kOlder);
  EXPECT_EQ(hit->winner.admission.created_at, kOlder);
  EXPECT_EQ(hit->winner.measurements.at(0).created_at, kOlder);
  EXPECT_EQ(hit->winner.measurements.size(), 2u);
  EXPECT_EQ(hit->winner.measurements.at(0).throttle, "power+thermal");
  EXPECT_EQ(hit->winner.measurements.at(0).num_dropped, 2);
  EXPECT_EQ(hit->winner.measurements.at(0).high_us, 4.875);
  EXPECT_TRUE(hit->winner.provisional());
  EXPECT_EQ(hit->winner.effort, "quick");
  EXPECT_EQ(hit->winner.margin_default_low, 0.375);
  EXPECT_EQ(hit->winner.binary.cubin, sample_binary("other").cubin);
  EXPECT_EQ(hit->winner.binary.kernels, sample_binary("other").kernels);
  EXPECT_EQ(testing::dump(file), before);
}

TEST_F(Transfer, TheMoreRecentWinnerStays) {
  const fs::path older = make_file("older.db", winner_of(kOlder, 1, "older"));
  const fs::path newer = make_file("newer.db", winner_of(kNewer, 2, "newer"));
  const auto store = TuneStore::open_in_memory();
  store->put_winner(sample_gpu(), sample_winner());
  const auto split_cap = [&] {
    return store->find_winner(sample_gpu(), sample_problem(), sample_toolchain())
        ->winner.candidate.split_cap;
  };
  expect_counts(store->import_from(older), 0, 0, 1, 1);
  EXPECT_EQ(split_cap(), testing::sample_candidate().split_cap);
  expect_counts(store->import_from(newer), 0, 1, 0, 1);
  EXPECT_EQ(split_cap(), 2);
  expect_counts(store->import_from(newer), 0, 0, 1, 0);
  EXPECT_EQ(split_cap(), 2);
}

TEST_F(Transfer, ImportsIntoDifferentIds) {
  const fs::path file = make_file("other.db", winner_of(kNewer, 3, "other"));
  const auto store = TuneStore::open_in_memory();
  // Rows of every table, so that no id of the other file is free here.
  DeviceInfo gpu = sample_gpu();
  gpu.name = "Another GPU";
  Winner mine = sample_winner(Problem::parse("decode/b4/q1/kv7/h8x1/d64/contiguous/bf16"));
  mine.toolchain.compiler_version = "12.9";
  store->put_winner(gpu, mine);
  expect_counts(store->import_from(file), 1, 0, 0, 1);
  const auto hit = store->find_winner(sample_gpu(), sample_problem(), sample_toolchain());
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->winner.binary.cubin, sample_binary("other").cubin);
  const auto own = store->find_winner(gpu, mine.problem, mine.toolchain);
  ASSERT_TRUE(own);
  EXPECT_EQ(own->winner.binary.cubin, mine.binary.cubin);
}

TEST_F(Transfer, ImportsMeasurementsAndRejectionsByAge) {
  const std::vector<CandidateMeasurements> mine = {
      {testing::sample_candidate(), {sample_measurement(8, 1), sample_measurement(16, 1)}}};
  std::vector<CandidateMeasurements> theirs = {
      {testing::sample_candidate(), {sample_measurement(8, 2), sample_measurement(16, 2)}}};
  for (Measurement& point : theirs[0].points) point.spread_us *= 2;  // relatively the same
  theirs[0].points[0].created_at = kOlder;
  theirs[0].points[1].created_at = kNewer;
  {
    const auto other = TuneStore::open(dir_ / "other.db");
    other->put_measurements(sample_gpu(), sample_problem(), sample_toolchain(), theirs);
    const std::vector<RejectionRecord> rejected = {
        {testing::sample_candidate(), Stage::kTime, {RejectReason::kSlow, "us=9"}}};
    other->put_rejections(sample_gpu(), sample_problem(), sample_toolchain(), rejected);
  }
  const auto store = TuneStore::open_in_memory();
  store->put_measurements(sample_gpu(), sample_problem(), sample_toolchain(), mine);
  store->import_from(dir_ / "other.db");
  const auto got = store->measurements(sample_gpu(), sample_problem(), sample_toolchain());
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].points.at(0).median_us, 1);
  EXPECT_EQ(got[0].points.at(1).median_us, 2);
  EXPECT_EQ(store->rejections(sample_gpu(), sample_problem(), sample_toolchain()).size(), 1u);
}

// Ours is the sample winner; theirs differs from it in one thing, and both differ in age.
class Evidence : public Transfer {
 protected:
  // Whether theirs takes our place.
  bool wins(const std::function<void(Winner&)>& change, const char* created_at,
            const ImportOptions& options = {.timing_method = 1, .driver_version = "13.0"}) {
    Winner theirs = winner_of(created_at, 2, "theirs");
    change(theirs);
    for (Measurement& point : theirs.measurements) {
      point.method = theirs.method;
      point.driver_version = theirs.driver_version;
    }
    const fs::path file = make_file("their" + std::to_string(num_files_++) + ".db", theirs);
    const auto store = TuneStore::open_in_memory();
    store->put_winner(sample_gpu(), sample_winner());
    const ImportResult result = store->import_from(file, options);
    const Winner got = store->winners().at(0).second;
    const bool won = got.candidate.split_cap == 2;
    EXPECT_EQ(result.winners_replaced, won ? 1 : 0);
    EXPECT_EQ(result.winners_kept, won ? 0 : 1);
    // Nothing of a row that moves is stamped anew.
    const Winner& expected = won ? theirs : sample_winner();
    EXPECT_EQ(got.created_at, expected.created_at);
    EXPECT_EQ(got.driver_version, expected.driver_version);
    EXPECT_EQ(got.method, expected.method);
    EXPECT_EQ(got.admission.created_at, expected.admission.created_at);
    EXPECT_EQ(got.measurements.at(0).created_at, expected.measurements.at(0).created_at);
    EXPECT_EQ(got.measurements.at(0).driver_version, expected.measurements.at(0).driver_version);
    return won;
  }
  int num_files_ = 0;
};

TEST_F(Evidence, OfTodaysMethodComesFirst) {
  const auto older = [](Winner& w) { w.method = 0; };
  const auto later = [](Winner& w) { w.method = 2; };
  const auto partial = [](Winner& w) { w.method = -1; };
  EXPECT_FALSE(wins(older, kNewer));
  EXPECT_FALSE(wins(later, kNewer));
  EXPECT_FALSE(wins(partial, kNewer));
  EXPECT_TRUE(wins(later, kOlder, {.timing_method = 2}));
  EXPECT_TRUE(wins(later, kOlder, {}));  // not known: the later one
  EXPECT_FALSE(wins(partial, kNewer, {}));
}

TEST_F(Evidence, UnderTheTargetsDriverComesNext) {
  const auto other = [](Winner& w) { w.driver_version = "12.4"; };
  EXPECT_FALSE(wins(other, kNewer));
  EXPECT_TRUE(wins(other, kOlder, {.timing_method = 1, .driver_version = "12.4"}));
  EXPECT_TRUE(wins(other, kNewer, {.timing_method = 1}));  // not known: by age
  EXPECT_TRUE(wins(other, kNewer, {.timing_method = 1, .driver_version = "it's"}));
}

TEST_F(Evidence, OfMoreSamplesOrASmallerSpreadComesNext) {
  const auto more = [](Winner& w) {
    for (auto& point : w.measurements) point.num_samples = 20;
  };
  const auto fewer = [](Winner& w) {
    for (auto& point : w.measurements) point.num_samples = 3;
  };
  const auto wider = [](Winner& w) {
    for (auto& point : w.measurements) point.spread_us = 1;
  };
  const auto tighter = [](Winner& w) {
    for (auto& point : w.measurements) point.spread_us = 0.1;
  };
  EXPECT_TRUE(wins(more, kOlder));
  EXPECT_FALSE(wins(fewer, kNewer));
  EXPECT_TRUE(wins(tighter, kOlder));
  EXPECT_FALSE(wins(wider, kNewer));
}

TEST_F(Evidence, ThatIsNewerComesLast) {
  const auto same = [](Winner&) {};
  EXPECT_TRUE(wins(same, kNewer));
  EXPECT_FALSE(wins(same, kOlder));
}

TEST_F(Evidence, MergingInAnyOrderGivesTheSame) {
  Winner best = winner_of(kOlder, 1, "best");
  for (Measurement& point : best.measurements) point.num_samples = 100;
  const std::vector<fs::path> files = {make_file("a.db", winner_of(kOlder, 5, "a")),
                                       make_file("b.db", best),
                                       make_file("c.db", winner_of(kNewer, 6, "c"))};
  std::vector<std::size_t> order = {0, 1, 2};
  do {
    const auto store = TuneStore::open_in_memory();
    for (const std::size_t i : order) store->import_from(files[i], {.timing_method = 1});
    EXPECT_EQ(store->winners().at(0).second.candidate.split_cap, 1);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(Transfer, IntoACopyCountsWhatWouldComeAndChangesNoFile) {
  const fs::path file = make_file("other.db", winner_of(kNewer, 3, "other"));
  make_file("tune.db", sample_winner());
  const auto before = testing::snapshot(dir_.path());
  {
    const auto copy = TuneStore::open_copy(dir_ / "tune.db");
    EXPECT_EQ(copy->path(), dir_ / "tune.db");
    expect_counts(copy->import_from(file), 0, 1, 0, 1);
    expect_counts(copy->import_from(file), 0, 0, 1, 0);  // the first one counts
    EXPECT_NE(cache_error_of([&] { copy->import_from(dir_ / "tune.db"); }).find("the cache itself"),
              std::string::npos);
    EXPECT_EQ(testing::snapshot(dir_.path()), before);
  }
  EXPECT_EQ(testing::snapshot(dir_.path()), before);
  expect_counts(TuneStore::open(dir_ / "tune.db")->import_from(file), 0, 1, 0, 1);
  EXPECT_NE(testing::snapshot(dir_.path()), before);
}

TEST_F(Transfer, KeepsTheGpuOfEveryRow) {
  DeviceInfo gpu = sample_gpu();
  gpu.name = "Another GPU";
  TuneStore::open(dir_ / "other.db")->put_winner(gpu, winner_of(kOlder, 3, "other"));
  const auto store = TuneStore::open_in_memory();
  store->put_winner(sample_gpu(), sample_winner());
  expect_counts(store->import_from(dir_ / "other.db"), 1, 0, 0, 1);
  EXPECT_EQ(store->winners(gpu.identity()).size(), 1u);
  EXPECT_EQ(store->winners(sample_gpu().identity()).size(), 1u);
}

TEST_F(Transfer, LeavesOutDamagedBinariesAndTheirWinners) {
  const fs::path file = make_file("other.db", winner_of(kNewer, 3, "other"));
  TuneStore::open(file)->put_binary(sample_binary("good"),
                                    "splitkv/d64/contiguous/bf16/m16n16s1w2");
  testing::tamper(file, "UPDATE binaries SET cubin = x'28b52ffd00' WHERE content = '" +
                            sample_binary("other").content.text() + "'");
  Warnings warnings;
  const auto store = TuneStore::open_in_memory(warnings.sink());
  expect_counts(store->import_from(file), 0, 0, 0, 1);
  EXPECT_FALSE(store->find_winner(sample_gpu(), sample_problem(), sample_toolchain()));
  EXPECT_TRUE(store->find_binary(sample_binary("good").key));
  ASSERT_EQ(warnings.count(), 1u);
  EXPECT_NE(warnings.texts()[0].find(sample_binary("other").key.text()), std::string::npos);
}

TEST_F(Transfer, RefusesFilesThatAreNoCacheAndNamesThem) {
  testing::write_file(dir_ / "text.db", std::string(5000, 'x'));
  testing::write_file(dir_ / "empty.db", "");
  SQLite::Database((dir_ / "foreign.db").string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE)
      .exec("CREATE TABLE t (x)");
  const fs::path newer = make_file("newer.db", sample_winner());
  testing::tamper(newer, "PRAGMA user_version = 99");
  const auto store = TuneStore::open(dir_ / "tune.db");
  store->put_winner(sample_gpu(), sample_winner());
  const std::string before = testing::dump(dir_ / "tune.db");
  for (const char* name : {"text.db", "empty.db", "foreign.db", "newer.db", "missing.db"}) {
    const std::string message = cache_error_of([&] { store->import_from(dir_ / name); });
    EXPECT_NE(message.find("path=" + (dir_ / name).string()), std::string::npos) << message;
    EXPECT_NE(message.find("; "), std::string::npos) << message;
  }
  EXPECT_FALSE(fs::exists(dir_ / "missing.db"));
  EXPECT_TRUE(testing::files_with(dir_.path(), "damaged").empty());
  EXPECT_EQ(testing::dump(dir_ / "tune.db"), before);
}

TEST_F(Transfer, RefusesADamagedFileBeforeItCopiesAnything) {
  const fs::path file = make_file("other.db", winner_of(kNewer, 3, "other"));
  std::string bytes = testing::read_file(file);
  ASSERT_GT(bytes.size(), 8u * 4096);
  bytes.replace(4096, 3 * 4096, std::string(3 * 4096, '\x55'));
  testing::write_file(file, bytes);
  const auto store = TuneStore::open(dir_ / "tune.db");
  EXPECT_THROW(store->import_from(file), CacheError);
  EXPECT_EQ(store->stats().num_gpus, 0);
  EXPECT_TRUE(testing::files_with(dir_.path(), "damaged").empty());
}

TEST_F(Transfer, RefusesToImportItself) {
  const fs::path file = make_file("tune.db", sample_winner());
  fs::create_symlink(file, dir_ / "link.db");
  const auto store = TuneStore::open(file);
  for (const char* name : {"tune.db", "link.db", "./tune.db"}) {
    const std::string message = cache_error_of([&] { store->import_from(dir_ / name); });
    EXPECT_NE(message.find("this is the cache itself"), std::string::npos) << message;
  }
}

TEST_F(Transfer, ARoundTripThroughExportAndImportIsComplete) {
  const auto store = TuneStore::open_in_memory();
  store->put_winner(sample_gpu(), sample_winner());
  store->export_to(dir_ / "ship.db");
  const auto target = TuneStore::open(dir_ / "tune.db");
  expect_counts(target->import_from(dir_ / "ship.db"), 1, 0, 0, 1);
  EXPECT_EQ(testing::dump(dir_ / "tune.db"), testing::dump(dir_ / "ship.db"));
}

}  // namespace
}  // namespace attune
