// What an operator does: check, shards, merge, verify, prune, bases, on caches with made-up results.
#include <csignal>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include <SQLiteCpp/SQLiteCpp.h>

#include "tests/cli/made_up_results.h"
#include "tests/cli/program.h"
#include "tests/support/processes.h"
#include "tests/support/test_data.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOther = "decode/b2/q1/kv1-4096/h8x2/d128/contiguous/bf16";
constexpr const char* kThird = "decode/b4/q1/kv1-4096/h8x2/d128/contiguous/bf16";

class ShipProgram : public ProgramTest {
 protected:
  fs::path make(const std::string& name, const std::vector<std::string>& problems) {
    const fs::path file = folder_ / name;
    const auto store = TuneStore::open(file);
    for (const std::string& problem : problems) store_made_up_winner(*store, problem);
    return file;
  }
  // Names and bytes of everything in a folder.
  static std::map<std::string, std::string> bytes_in(const fs::path& folder) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::directory_iterator(folder)) {
      all[entry.path().filename().string()] = read_file(entry.path());
    }
    return all;
  }
  Finished check(std::vector<std::string> problems, std::vector<std::string> more = {}) {
    std::vector<std::string> all = {"tune", "--check", "--gpu", "H200", "--json", cache_flag()};
    all.insert(all.end(), more.begin(), more.end());
    all.insert(all.end(), problems.begin(), problems.end());
    return run(std::move(all));
  }
};

TEST_F(ShipProgram, CheckSaysWhetherAllIsTunedAndChangesNoByte) {
  make("cache/tune.db", {kTuned, kOther});
  const auto before = bytes_in(folder_ / "cache");
  ASSERT_EQ(before.size(), 1U);
  const auto start = std::chrono::steady_clock::now();
  const Finished complete = check({kTuned, kOther});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  EXPECT_EQ(complete.exit_code, 0) << complete.err;
  EXPECT_EQ(complete.json()["complete"], true);
  EXPECT_EQ(complete.json()["current"], 2);
  const Finished missing = check({kTuned, kThird});
  EXPECT_EQ(missing.exit_code, 1) << missing.err;
  EXPECT_EQ(missing.json()["missing"], 1);
  EXPECT_EQ(missing.json()["problems"][1]["state"], "missing");
  EXPECT_EQ(bytes_in(folder_ / "cache"), before);
}

TEST_F(ShipProgram, CheckTellsWhatWouldBeTimedAgain) {
  {
    const auto store = TuneStore::open(cache());
    Winner winner = store_made_up_winner(*store);
    winner.binary.cubin = {std::byte{1}};
    winner.binary.content = digest_of(winner.binary.cubin);
    winner.method = kPartialTimingMethod;
    store->put_winner(made_up_gpu(), winner);
  }
  const Finished partial = check({kTuned});
  EXPECT_EQ(partial.exit_code, 4) << partial.err;
  EXPECT_EQ(partial.json()["problems"][0]["state"], "partial");
  const Finished text = run({"tune", "--check", "--gpu", "H200", cache_flag(), kTuned});
  EXPECT_NE(text.out.find("0 of 1 problem current, 1 to be timed again, 0 missing"),
            std::string::npos)
      << text.out;
}

TEST_F(ShipProgram, CheckOfAnAbsentCacheCreatesNothing) {
  EXPECT_EQ(run({"tune", "--check", "--device", "host", cache_flag(), kTuned}).exit_code, 1);
  EXPECT_FALSE(fs::exists(cache()));
  EXPECT_EQ(run({"tune", "--check", cache_flag(), kTuned}).exit_code, 3);  // no GPU, none named
}

TEST_F(ShipProgram, ABakedCacheServesFromBeneathAndStaysAsItIs) {
  const fs::path base = make("image/base.db", {kTuned});
  fs::permissions(base, fs::perms(0444));
  const auto before = bytes_in(folder_ / "image");
  more_environment_ = {"ATTUNE_CACHE_BASE=" + base.string()};
  EXPECT_EQ(check({kTuned}).exit_code, 0);
  EXPECT_EQ(check({kTuned}).json()["bases"][0], base.string());
  EXPECT_FALSE(fs::exists(cache()));
  const auto explained = run({"explain", kTuned, "--gpu", "H200", "--json", cache_flag()}).json();
  EXPECT_EQ(explained["match"], "exact");
  EXPECT_EQ(run({"cache", "list", "--json", cache_flag()}).json()["winners"].size(), 1U);
  EXPECT_EQ(run({"cache", "path", "--json", cache_flag()}).json()["bases"][0], base.string());
  more_environment_.clear();
  EXPECT_EQ(check({kTuned}).exit_code, 2);  // no results of that GPU
  EXPECT_EQ(check({kTuned}, {"--cache-base", base.string()}).exit_code, 0);
  EXPECT_EQ(bytes_in(folder_ / "image"), before);
}

TEST_F(ShipProgram, AnAliasIsServedAsProvisional) {
  {
    const auto store = TuneStore::open(cache());
    store_made_up_winner(*store);
    store_made_up_winner(*store, kOther, made_up_gpu("NVIDIA H200 NVL"));
  }
  const auto explain = [&](std::vector<std::string> more) {
    std::vector<std::string> all = {"explain", kTuned, "--gpu", "NVL", "--json", cache_flag()};
    all.insert(all.end(), more.begin(), more.end());
    return run(std::move(all)).json();
  };
  EXPECT_EQ(explain({})["match"], "default");
  const auto aliased = explain({"--alias", "NVIDIA H200"});
  EXPECT_EQ(aliased["match"], "nearest");
  EXPECT_NE(std::string(aliased["tune_command"]).find("attune tune"), std::string::npos);
  EXPECT_NE(std::string(aliased["reason"]).find("provisional"), std::string::npos) << aliased;
  more_environment_ = {"ATTUNE_GPU_ALIAS=NVIDIA H200"};
  EXPECT_EQ(explain({})["match"], "nearest");
  const Finished checked = run({"tune", "--check", "--gpu", "NVL", "--json", cache_flag(), kTuned});
  EXPECT_EQ(checked.exit_code, 4);
  EXPECT_EQ(checked.json()["problems"][0]["state"], "other gpu");
}

TEST_F(ShipProgram, ShardsMergeIntoOneCache) {
  std::set<std::string> problems;
  const auto shard_problems = [&](const std::string& shard) {
    std::vector<std::string> mine;
    const auto json = check({}, {"--preset", "gemma4-31b", "--shard", shard}).json();
    for (const auto& one : json["problems"]) mine.push_back(one["problem"]);
    return mine;
  };
  make("cache/tune.db", {kTuned});
  std::size_t total = 0;
  for (const char* shard : {"0/3", "1/3", "2/3"}) {
    const auto mine = shard_problems(shard);
    EXPECT_FALSE(mine.empty()) << shard;
    total += mine.size();
    problems.insert(mine.begin(), mine.end());
  }
  const auto whole = check({}, {"--preset", "gemma4-31b"}).json()["problems"];
  EXPECT_EQ(total, whole.size());
  EXPECT_EQ(problems.size(), whole.size());
  EXPECT_EQ(check({}, {"--shard", "3/3"}).exit_code, 2);

  const fs::path first = make("0.db", {kTuned, kOther}), second = make("1.db", {kOther, kThird});
  const std::string into = (folder_ / "merged.db").string();
  const auto dry = run(
      {"cache", "merge", first.string(), second.string(), "--into", into, "--dry-run", "--json"});
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_EQ(dry.json()["winners_added"], 3);  // each file on top of those before it
  EXPECT_EQ(dry.json()["winners_kept"], 1);
  EXPECT_FALSE(fs::exists(into));
  const auto merged =
      run({"cache", "merge", first.string(), second.string(), "--into", into, "--json"}).json();
  EXPECT_EQ(merged["winners_added"], 3);
  EXPECT_EQ(merged["winners_kept"], 1);
  EXPECT_EQ(merged["files"].size(), 2U);
  EXPECT_EQ(run({"cache", "verify", into}).exit_code, 0);
  EXPECT_EQ(run({"cache", "merge", "nowhere.db", "--into", into}).exit_code, 1);
}

// A cache of schema 1, and one whose process was killed and has left a log.
TEST_F(ShipProgram, ADryRunChangesNoByteOfAnyFile) {
  const auto older = [&](const std::string& name) {
    SQLite::Database db((folder_ / name).string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    db.exec("PRAGMA foreign_keys = OFF");
    db.exec(read_file(test_data("cache/schema-1.sql")));
    return (folder_ / name).string();
  };
  fs::create_directories(folder_ / "some");
  const std::string target = older("some/tune.db"), source = older("some/other.db");
  const fs::path logged = folder_ / "some/logged.db";
  const pid_t child = testing::start_process([&] {
    const auto store = TuneStore::open(logged);
    store_made_up_winner(*store);
    ::kill(::getpid(), SIGKILL);
  });
  EXPECT_FALSE(testing::ended_well(child));
  const auto state = [&] {
    auto all = bytes_in(folder_ / "some");
    for (auto& [name, bytes] : all) {
      bytes += std::to_string(static_cast<int>(fs::status(folder_ / "some" / name).permissions()));
    }
    return all;
  };
  const auto before = state();
  ASSERT_EQ(before.size(), 5U);
  const std::string cache_flag = "--cache=" + target;
  const std::vector<std::vector<std::string>> dry_runs = {
      {"cache", "prune", "--gpu", "Sample", cache_flag},
      {"cache", "prune", "--older-templates", "--failures", cache_flag},
      {"cache", "prune", "--gpu", "H200", "--cache=" + logged.string()},
      {"cache", "import", source, logged.string(), cache_flag},
      {"cache", "merge", source, logged.string(), "--into", target},
      {"cache", "merge", source, "--into", logged.string()}};
  for (auto arguments : dry_runs) {
    arguments.insert(arguments.end(), {"--dry-run", "--json"});
    const Finished finished = run(arguments);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_EQ(state(), before) << ::testing::PrintToString(arguments);
  }
  EXPECT_EQ(run({"cache", "prune", "--gpu", "Sample", "--dry-run", "--json", cache_flag})
                .json()["winners"],
            2);
}

TEST_F(ShipProgram, TheFleetScriptMerges) {
  make("shards/0.db", {kTuned});
  make("shards/1.db", {kOther});
  const fs::path program = fs::canonical("/proc/self/exe").parent_path();
  const fs::path bundled = program / "../../examples/fleet/slurm.sh";
  const fs::path script =
      fs::exists(bundled) ? bundled : fs::path(ATTUNE_EXAMPLES) / "fleet/slurm.sh";
  const std::string command = "SHARED='" + folder_.path().string() + "' ATTUNE='" +
                              attune_program().string() + "' bash '" + script.string() +
                              "' merge >/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0);
  const auto list = run({"cache", "list", "--json", "--cache", (folder_ / "tuned.db").string()});
  EXPECT_EQ(list.json()["winners"].size(), 2U);
}

// The first block under "Ship it" of docs/cache.md, word for word, on two machines with one folder.
TEST_F(ShipProgram, ThePageAboutShippingDoesWhatItSays) {
  const fs::path page = fs::path(ATTUNE_EXAMPLES) / "../docs/cache.md";
  if (!fs::exists(page)) GTEST_SKIP() << "a bundle has no docs folder";
  make("build/tune.db", {kTuned});
  make("0.db", {kTuned});
  make("1.db", {kOther});
  std::istringstream text(read_file(page));
  std::string line;
  while (std::getline(text, line) && line != "## Ship it") continue;
  while (std::getline(text, line) && line != "```") continue;
  std::vector<std::string> commands;
  while (std::getline(text, line) && line != "```") commands.push_back(line);
  ASSERT_EQ(commands.size(), 4U);
  for (const std::string& command : commands) {
    const bool is_source = command.find(" export ") != std::string::npos;
    const std::string shell = "cd '" + folder_.path().string() + "' && PATH='" +
                              attune_program().parent_path().string() +
                              "':$PATH ATTUNE_CACHE=" + (is_source ? "build" : "target") +
                              "/tune.db " + command + " >/dev/null";
    EXPECT_EQ(std::system(shell.c_str()), 0) << command;
  }
  for (const auto& [file, winners] : {std::pair("target/tune.db", 1U), std::pair("all.db", 2U)}) {
    const auto list = run({"cache", "list", "--json", "--cache", (folder_ / file).string()});
    EXPECT_EQ(list.json()["winners"].size(), winners) << file;
  }
}

TEST_F(ShipProgram, VerifyFindsDamageAndLeavesItThere) {
  const fs::path file = make("tune.db", {kTuned});
  EXPECT_EQ(run({"cache", "verify", file.string(), "--json"}).json()["sound"], true);
  std::string bytes = read_file(file);
  const auto at = bytes.find("splitkv/m");
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 9, "\x55\x55\x55\x55\x55\x55\x55\x55\x55");
  std::ofstream(file, std::ios::binary) << bytes;
  const Finished broken = run({"cache", "verify", file.string(), "--json"});
  EXPECT_EQ(broken.exit_code, 1) << broken.err;
  EXPECT_FALSE(broken.json()["problems"].empty());
  EXPECT_EQ(read_file(file), bytes);
  EXPECT_EQ(run({"cache", "verify", (folder_ / "none.db").string()}).exit_code, 1);
}

TEST_F(ShipProgram, VerifyAndDoctorLookAtTheBasesToo) {
  const fs::path sound = make("sound.db", {kTuned}), broken = make("broken.db", {kOther});
  fs::permissions(sound, fs::perms(0444));
  std::string bytes = read_file(broken);
  const auto at = bytes.find("splitkv/m");
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 9, "\x55\x55\x55\x55\x55\x55\x55\x55\x55");
  std::ofstream(broken, std::ios::binary) << bytes;
  const std::string missing = (folder_ / "missing.db").string();
  const auto verify = [&](const std::string& bases) {
    more_environment_ = {"ATTUNE_CACHE_BASE=" + bases};
    return run({"cache", "verify", "--json", cache_flag()});
  };
  const Finished alone = verify(sound.string());  // there is no cache yet
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_EQ(alone.json()["path"], nullptr);
  EXPECT_EQ(alone.json()["bases"][0]["path"], sound.string());
  EXPECT_EQ(alone.json()["bases"][0]["winners"], 1);
  make("cache/tune.db", {kThird});
  EXPECT_EQ(verify(sound.string()).json()["winners"], 1);
  const Finished all = verify(sound.string() + ":" + broken.string() + ":" + missing);
  EXPECT_EQ(all.exit_code, 1);
  EXPECT_EQ(all.json()["sound"], false);
  EXPECT_TRUE(all.json()["problems"].empty());
  EXPECT_EQ(all.json()["bases"][0]["sound"], true);
  EXPECT_EQ(all.json()["bases"][1]["sound"], false);
  EXPECT_EQ(all.json()["bases"][2]["sound"], false);
  EXPECT_EQ(run({"cache", "verify", sound.string()}).exit_code, 0);  // the named file alone
  EXPECT_EQ(read_file(broken), bytes);

  more_environment_[0] += ":" + cache().string();
  const Finished doctor = run({"doctor", "--no-gpu", "--json", cache_flag()});
  EXPECT_EQ(doctor.exit_code, 1);
  const auto bases = doctor.json()["cache"]["bases"];
  ASSERT_EQ(bases.size(), 4U);
  EXPECT_EQ(bases[0]["problem"], "");
  EXPECT_EQ(bases[0]["winners"], 1);
  EXPECT_NE(bases[2]["problem"], "");
  EXPECT_NE(std::string(bases[3]["problem"]).find("the cache itself"), std::string::npos);
  const Finished text = run({"doctor", "--no-gpu", cache_flag()});
  EXPECT_NE(text.out.find("base         " + sound.string() + "\n             schema 2"),
            std::string::npos)
      << text.out;
  const Finished listed = run({"cache", "list", cache_flag()});
  EXPECT_NE(listed.err.find("(this is the cache itself)"), std::string::npos) << listed.err;
}

TEST_F(ShipProgram, BasesAloneAreNamedAsSuch) {
  const fs::path base = make("base.db", {kTuned});
  more_environment_ = {"ATTUNE_CACHE_BASE=" + base.string()};
  const Finished listed = run({"cache", "list", cache_flag()});
  EXPECT_NE(listed.err.find("there is no cache yet: path=" + cache().string() +
                            "; bases: " + base.string()),
            std::string::npos)
      << listed.err;
  const Finished checked = run({"tune", "--check", "--gpu", "H200", cache_flag(), kTuned});
  EXPECT_NE(checked.out.find("the bases " + base.string() + " alone: there is no cache yet"),
            std::string::npos)
      << checked.out;
  EXPECT_EQ(check({kTuned}).json()["cache"], nullptr);
  EXPECT_EQ(run({"cache", "stats", "--json", cache_flag()}).json()["path"], cache().string());
  make("cache/tune.db", {kOther});
  const Finished both = run({"tune", "--check", "--gpu", "H200", cache_flag(), kTuned});
  EXPECT_NE(both.out.find(cache().string() + " and its bases " + base.string()), std::string::npos)
      << both.out;
}

TEST_F(ShipProgram, PruneSaysWhatWouldGoAndKeepsABackup) {
  {
    const auto store = TuneStore::open(cache());
    store_made_up_winner(*store);
    store_made_up_winner(*store, kOther, made_up_gpu("NVIDIA H100"));
  }
  EXPECT_EQ(run({"cache", "prune", cache_flag()}).exit_code, 2);  // of what?
  const auto before = read_file(cache());
  const auto dry = run({"cache", "prune", "--gpu", "H100", "--dry-run", "--json", cache_flag()});
  EXPECT_EQ(dry.json()["winners"], 1);
  EXPECT_EQ(dry.json()["backup"], nullptr);
  EXPECT_EQ(read_file(cache()), before);
  // Both flags: what both hold for.
  const auto neither = run({"cache", "prune", "--gpu", "H100", "--problem", kTuned, "--dry-run",
                            "--json", cache_flag()});
  EXPECT_EQ(neither.json()["winners"], 0);
  const std::string none = (folder_ / "none.db").string();
  EXPECT_EQ(run({"cache", "prune", "--gpu", "H100", "--cache", none}).exit_code, 1);
  const auto pruned = run({"cache", "prune", "--gpu", "H100", "--json", cache_flag()}).json();
  EXPECT_EQ(pruned["winners"], 1);
  EXPECT_EQ(run({"cache", "list", "--json", cache_flag()}).json()["winners"].size(), 1U);
  const std::string backup = pruned["backup"];
  EXPECT_EQ(fs::status(backup).permissions(), fs::perms(0600));
  EXPECT_EQ(run({"cache", "list", "--json", "--cache", backup}).json()["winners"].size(), 2U);
  EXPECT_EQ(run({"cache", "prune", "--older-templates", "--json", cache_flag()}).json()["winners"],
            0);
  const auto last = run({"cache", "prune", "--problem", kTuned, "--no-backup", cache_flag()});
  EXPECT_NE(last.out.find("1 winners"), std::string::npos) << last.out;
  EXPECT_EQ(run({"cache", "stats", "--json", cache_flag()}).json()["winners"], 0);
}

TEST_F(ShipProgram, ACacheThatAnyoneMayWriteIsRefused) {
  make("open/tune.db", {kTuned});
  fs::permissions(folder_ / "open", fs::perms(0777));
  const Finished refused = run({"cache", "list", "--cache", (folder_ / "open/tune.db").string()});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find("anyone may put files there"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace attune
