// The pool with the real worker program.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "jit/compile_pool.h"
#include "jit/worker_process.h"
#include "tests/support/require_nvrtc.h"
#include "tests/support/temporary_folder.h"

namespace attune {
namespace {

std::vector<CompileJob> jobs(std::size_t count) {
  std::vector<CompileJob> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = "kernel" + std::to_string(i);
    all[i].id = i;
    all[i].arch = "sm_80";
    all[i].source.split_symbol = name;
    all[i].source.text = "#include \"templates/x.h\"\nextern \"C\" __global__ void " + name +
                         "(int* p) { *p = kValue; }\n";
    all[i].source.headers = {{"templates/x.h", "constexpr int kValue = 3;\n"}};
  }
  return all;
}

class WorkerTest : public NvrtcTest {
 protected:
  static CompilePoolOptions options(int num_workers) {
    CompilePoolOptions all;
    all.num_workers = num_workers;
    all.timeout_s = 100;
    all.compilers.nvrtc = test_nvrtc_search();
    return all;
  }

  // A worker program that leaves its process id in a file before it becomes the real one.
  static std::filesystem::path worker_with_pid_file(const TemporaryFolder& folder) {
    return folder.write_script("worker", "echo $$ >> " + (folder.path() / "pids").string() +
                                             "\nexec " + find_worker_program().string() + "\n");
  }
};

TEST_F(WorkerTest, CompilesEveryJob) {
  CompilePool pool(options(2));
  std::map<std::size_t, CompileOutcome> outcomes;
  const std::size_t done = pool.run(jobs(6), [&](const CompileOutcome& outcome) {
    EXPECT_TRUE(outcomes.emplace(outcome.id, outcome).second) << outcome.id;
  });
  EXPECT_EQ(done, 6u);
  ASSERT_EQ(outcomes.size(), 6u);
  for (const auto& [id, outcome] : outcomes) {
    ASSERT_TRUE(outcome.binary.has_value()) << outcome.error;
    EXPECT_EQ(outcome.binary->kernels.at(0).symbol, "kernel" + std::to_string(id));
    EXPECT_EQ(outcome.binary->key, compiler().key(jobs(6)[id].source, "sm_80"));
  }
}

TEST_F(WorkerTest, GivesTheBytesOfACompileInThisProcess) {
  CompilePool pool(options(1));
  pool.run(jobs(1), [&](const CompileOutcome& outcome) {
    ASSERT_TRUE(outcome.binary.has_value()) << outcome.error;
    EXPECT_EQ(outcome.binary->content, compiler().compile(jobs(1)[0].source, "sm_80").content);
  });
}

TEST_F(WorkerTest, ReportsACompileErrorWithItsLogAndGoesOn) {
  std::vector<CompileJob> work = jobs(2);
  work[0].source.text = "int f() { return nosuch; }\n";
  CompilePool pool(options(1));
  std::map<std::size_t, CompileOutcome> outcomes;
  pool.run(work, [&](const CompileOutcome& outcome) { outcomes[outcome.id] = outcome; });
  EXPECT_FALSE(outcomes[0].binary.has_value());
  EXPECT_TRUE(outcomes[0].error.starts_with("cannot compile the kernel: ")) << outcomes[0].error;
  EXPECT_NE(outcomes[0].log.find("nosuch"), std::string::npos);
  EXPECT_TRUE(outcomes[1].binary.has_value()) << outcomes[1].error;
}

TEST_F(WorkerTest, LosesOnlyTheJobOfAKilledWorker) {
  const TemporaryFolder folder;
  CompilePoolOptions all = options(1);
  all.worker_path = worker_with_pid_file(folder);
  CompilePool pool(all);
  std::map<std::size_t, CompileOutcome> outcomes;
  pool.run(jobs(4), [&](const CompileOutcome& outcome) {
    outcomes[outcome.id] = outcome;
    if (outcome.id != 1) return;
    pid_t pid = 0;
    std::ifstream(folder.path() / "pids") >> pid;
    ASSERT_GT(pid, 1);
    kill(pid, SIGKILL);
  });
  ASSERT_EQ(outcomes.size(), 4u);
  EXPECT_TRUE(outcomes[0].binary.has_value()) << outcomes[0].error;
  EXPECT_TRUE(outcomes[1].binary.has_value()) << outcomes[1].error;
  EXPECT_TRUE(outcomes[2].error.starts_with("the compile worker died: signal 9"))
      << outcomes[2].error;
  EXPECT_TRUE(outcomes[3].binary.has_value()) << outcomes[3].error;
}

TEST_F(WorkerTest, IgnoresCtrlC) {
  const TemporaryFolder folder;
  CompilePoolOptions all = options(1);
  all.worker_path = worker_with_pid_file(folder);
  CompilePool pool(all);
  pool.run(jobs(3), [&](const CompileOutcome& outcome) {
    EXPECT_TRUE(outcome.binary.has_value()) << outcome.error;
    pid_t pid = 0;
    std::ifstream(folder.path() / "pids") >> pid;
    ASSERT_GT(pid, 1);
    kill(pid, SIGINT);
    EXPECT_NE(getpgid(pid), getpgrp());
  });
}

TEST_F(WorkerTest, KeepsItsWorkerForTheNextJob) {
  const TemporaryFolder folder;
  CompilePoolOptions all = options(1);
  all.worker_path = worker_with_pid_file(folder);
  CompilePool pool(all);
  pool.run(jobs(3), [](const CompileOutcome&) {});
  std::ifstream file(folder.path() / "pids");
  std::set<pid_t> pids;
  for (pid_t pid = 0; file >> pid;) pids.insert(pid);
  EXPECT_EQ(pids.size(), 1u);
}

TEST_F(WorkerTest, ReportsAMissingNvrtc) {
  const TemporaryFolder folder;
  CompilePoolOptions all = options(1);
  all.compilers.nvrtc.nvrtc_path = folder.path();
  CompilePool pool(all);
  pool.run(jobs(1), [&](const CompileOutcome& outcome) {
    EXPECT_TRUE(outcome.error.starts_with("no NVRTC library at the given place")) << outcome.error;
    EXPECT_TRUE(outcome.is_of_machine);
  });
}

TEST_F(WorkerTest, CompilesForGpuAndHostInOneWorker) {
  std::vector<CompileJob> work = jobs(3);
  work[1].arch = "host";
  work[1].source.text = "int value = kMissing;\n";
  CompilePool pool(options(1));
  std::map<std::size_t, CompileOutcome> outcomes;
  pool.run(work, [&](const CompileOutcome& outcome) { outcomes[outcome.id] = outcome; });
  EXPECT_TRUE(outcomes[0].binary.has_value()) << outcomes[0].error;
  EXPECT_NE(outcomes[1].error.find("kMissing"), std::string::npos) << outcomes[1].error;
  EXPECT_TRUE(outcomes[2].binary.has_value()) << outcomes[2].error;
}

TEST_F(WorkerTest, LeavesWhenItsInputEnds) {
  WorkerProcess worker(find_worker_program());
  ASSERT_EQ(shutdown(worker.socket(), SHUT_WR), 0);
  pollfd socket{worker.socket(), POLLIN, 0};
  ASSERT_EQ(poll(&socket, 1, 60000), 1) << "still running after a minute";
  EXPECT_FALSE(worker.receive());
  siginfo_t ended{};  // waits, but leaves the process for end() to describe
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(worker.pid()), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(worker.end().text, "exit status 0");
}

}  // namespace
}  // namespace attune
