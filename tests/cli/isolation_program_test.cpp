// attune tune when a candidate or a compile hangs: Ctrl-C, the budget, a deadline, and the end of
// attune itself.
#include <signal.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "cache/tune_store.h"
#include "jit/host/host_info.h"
#include "jit/worker_process.h"
#include "tests/cli/program.h"
#include "tests/support/planted_compiles.h"
#include "tests/support/processes.h"
#include "tests/support/require_cxx.h"
#include "tuner/space.h"
#include "tuner/tune_worker.h"

namespace attune {
namespace {

// Four candidates.
constexpr const char* kFew = "decode/b1/q1/kv64-256/h1x1/d64/invariant/contiguous/bf16";
constexpr const char* kOther = "decode/b2/q1/kv64-256/h2x1/d64/invariant/contiguous/bf16";
constexpr auto kAtOnce = std::chrono::seconds(5);

class IsolationProgram : public ProgramTest {
 protected:
  void SetUp() override {
    try {
      compiler_ = open_compiler({.host = test_host_search()}, "host");
    } catch (const DeviceUnavailable& error) {
      if (is_cxx_required()) FAIL() << error.what();
      GTEST_SKIP() << error.what();
    }
  }

  // Puts a kernel that never ends into the cache in the place of the one that is verified first.
  void plant_hang(const std::string& text) {
    const Problem problem = Problem::parse(text);
    const Variant variant = default_candidate(problem, host_device_info()).variant(problem);
    Planted kernel(attention_source(variant));
    hang()(&kernel);
    Binary binary = compiler_->compile(kernel.source(), "host");
    binary.key = compiler_->key(attention_source(variant), "host");
    TuneStore::open(cache())->put_binary(binary, variant.text());
  }
  Running start_tune(std::vector<std::string> problems, std::vector<std::string> flags = {}) {
    problems.insert(problems.begin(), "tune");
    problems.insert(problems.end(), {"--device", "host", "--json", cache_flag()});
    problems.insert(problems.end(), flags.begin(), flags.end());
    return start(std::move(problems));
  }
  // Until the candidate runs; its worker.
  static pid_t wait_for_hang(const Running& running) {
    std::vector<pid_t> workers;
    const auto has_worker = [&] {
      return !(workers = children_named("attune-measure-worker", running.pid)).empty();
    };
    EXPECT_TRUE(eventually(has_worker));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return workers.empty() ? -1 : workers.front();
  }
  // The rest of the work, with the candidate ended at its deadline.
  void expect_rest_is_done(std::vector<std::string> problems, int num_tuned) {
    const Finished rest = start_tune(std::move(problems), {"--candidate-timeout", "6s"}).wait();
    ASSERT_EQ(rest.exit_code, 0) << rest.err;
    EXPECT_EQ(rest.json()["compiled"], 0) << "nothing is compiled twice";
    EXPECT_EQ(rest.json()["tuned"], num_tuned);
    EXPECT_EQ(rest.json()["rejected"]["by_reason"]["timeout"], 1) << rest.out;
  }

  std::unique_ptr<Compiler> compiler_;
};

TEST_F(IsolationProgram, CtrlCWhileACandidateHangsEndsAtOnceAndTheNextRunGoesOn) {
  plant_hang(kFew);
  const Running running = start_tune({kFew});
  const pid_t worker = wait_for_hang(running);
  const auto pressed = std::chrono::steady_clock::now();
  kill(running.pid, SIGINT);
  const Finished finished = running.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - pressed, kAtOnce);
  EXPECT_EQ(finished.exit_code, 130) << finished.err;
  EXPECT_EQ(finished.json()["interrupted"], true);
  EXPECT_EQ(finished.json()["rejected"]["total"], 0);
  EXPECT_FALSE(is_running(worker));
  expect_rest_is_done({kFew}, 1);
  // The candidate is remembered: nothing hangs.
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(start_tune({kFew}).wait().json()["already_tuned"], 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kAtOnce);
}

TEST_F(IsolationProgram, TheBudgetEndsACandidateThatHangs) {
  plant_hang(kFew);
  const auto begin = std::chrono::steady_clock::now();
  const Finished finished = start_tune({kFew}, {"--budget", "5s"}).wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5) + kAtOnce);
  EXPECT_EQ(finished.exit_code, 4) << finished.err;
  EXPECT_EQ(finished.json()["complete"], false);
}

TEST_F(IsolationProgram, KilledInTheSecondProblemItKeepsTheFirstAndLeavesNoProcess) {
  ASSERT_EQ(start_tune({kOther}, {"--compile-only"}).wait().exit_code, 2);  // not with --device
  ASSERT_EQ(run({"tune", kOther, "--compile-only", "--arch", "host", cache_flag()}).exit_code, 0);
  const Running running = start_tune({kFew, kOther});
  const auto has_first = [&] {
    return std::filesystem::exists(cache()) && !TuneStore::open(cache())->winners().empty();
  };
  ASSERT_TRUE(eventually(has_first));
  const auto workers = children_named("attune-measure-worker", running.pid);
  kill(running.pid, SIGKILL);
  EXPECT_EQ(running.wait().exit_code, 128 + SIGKILL);
  for (const pid_t worker : workers) {
    EXPECT_TRUE(eventually([&] { return !is_running(worker); }, 5));
  }
  const Finished rest = start_tune({kFew, kOther}).wait();
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(rest.json()["compiled"], 0);
  EXPECT_GE(rest.json()["already_tuned"], 1);
}

TEST_F(IsolationProgram, KilledWhileACandidateHangsItLeavesNoProcess) {
  plant_hang(kFew);
  const Running running = start_tune({kFew});
  const pid_t worker = wait_for_hang(running);
  kill(running.pid, SIGKILL);
  running.wait();
  EXPECT_TRUE(eventually([&] { return !is_running(worker); }, 5));
}

// A compiler whose compiles never end.
class HangingCompiler : public IsolationProgram {
 protected:
  void SetUp() override {
    IsolationProgram::SetUp();
    const std::string real = test_host_search().cxx.empty() ? "g++" : test_host_search().cxx;
    script_ = folder_.write_script("cxx", "case \"$*\" in\n*-dM*) exec " + real +
                                              " \"$@\";;\nesac\necho $$ >> " + pids().string() +
                                              "\nexec sleep 1000\n");
    more_environment_ = {"ATTUNE_CXX=" + script_.string()};
  }
  std::filesystem::path pids() const { return folder_ / "pids"; }
  std::vector<pid_t> compiles() const {
    std::vector<pid_t> all;
    std::ifstream file(pids());
    for (pid_t pid = 0; file >> pid;) all.push_back(pid);
    return all;
  }
  bool all_ended() const {
    const auto all = compiles();
    return std::none_of(all.begin(), all.end(), is_running);
  }
  std::filesystem::path script_;
};

TEST_F(HangingCompiler, CtrlCEndsIt) {
  const Running running = start_tune({kFew});
  ASSERT_TRUE(eventually([&] { return !compiles().empty(); }));
  const auto pressed = std::chrono::steady_clock::now();
  kill(running.pid, SIGINT);
  EXPECT_EQ(running.wait().exit_code, 130);
  EXPECT_LT(std::chrono::steady_clock::now() - pressed, kAtOnce);
  EXPECT_TRUE(eventually([&] { return all_ended(); }, 5));
}

TEST_F(HangingCompiler, EndsWithAKilledTuneWorker) {
  TuneWorkerJob job;
  job.problem = kFew;
  job.cache_path = cache().string();
  job.device = "host";
  job.cxx_path = script_.string();
  const auto program = find_program("attune-tune-worker", "ATTUNE_TUNE_WORKER").string();
  const WorkerProcess worker(program, arguments_of(job));
  ASSERT_TRUE(eventually([&] { return !compiles().empty(); }));
  kill(worker.pid(), SIGKILL);
  EXPECT_TRUE(eventually([&] { return all_ended(); }, 5));
}

TEST_F(HangingCompiler, EndsWithAttuneAndTheNextRunGoesOn) {
  const Running running = start_tune({kFew});
  ASSERT_TRUE(eventually([&] { return !compiles().empty(); }));
  kill(running.pid, SIGKILL);
  running.wait();
  EXPECT_TRUE(eventually([&] { return all_ended(); }, 5));
  more_environment_.clear();
  EXPECT_EQ(start_tune({kFew}).wait().exit_code, 0);
}

TEST_F(IsolationProgram, NamesAMissingWorkerAndWhatToDo) {
  const std::string missing = (folder_ / "nowhere").string();
  more_environment_ = {"ATTUNE_MEASURE_WORKER=" + missing};
  const Finished finished = start_tune({kFew}).wait();
  EXPECT_EQ(finished.exit_code, 3);
  EXPECT_NE(finished.err.find("attune-measure-worker cannot be run: path=" + missing),
            std::string::npos)
      << finished.err;
}

TEST_F(IsolationProgram, NamesAWorkerThatDoesNotStart) {
  more_environment_ = {"ATTUNE_MEASURE_WORKER=" + folder_.write_script("w", "exit 9\n").string()};
  const Finished finished = start_tune({kFew}).wait();
  EXPECT_EQ(finished.exit_code, 3);
  EXPECT_NE(finished.err.find("the measure worker does not start"), std::string::npos);
  EXPECT_NE(finished.err.find("exit status 9"), std::string::npos) << finished.err;
}

}  // namespace
}  // namespace attune
