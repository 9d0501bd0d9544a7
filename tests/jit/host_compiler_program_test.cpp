// The system's C++ compiler where it is missing, fails or hangs, and in the workers of the pool.
#include <sys/types.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "common/error.h"
#include "jit/compile_pool.h"
#include "tests/jit/host_compile_fixtures.h"
#include "tests/support/require_cxx.h"

namespace attune {
namespace {

TEST(HostCompiler, NamesEveryProgramItTried) {
  const ScopedVariable variable("PATH", "/nowhere");
  try {
    open_compiler({}, "host");
    FAIL() << "found a compiler nowhere";
  } catch (const DeviceUnavailable& error) {
    const std::string message = error.what();
    for (const char* program : {"c++ (", "g++ (", "clang++ (", "apt-get install", "ATTUNE_CXX"}) {
      EXPECT_NE(message.find(program), std::string::npos) << message;
    }
  }
}

TEST(HostCompiler, TakesTheProgramItIsGivenAndNoOther) {
  for (const char* program : {"/nowhere/c++", "/bin/true", "/bin/false"}) {
    try {
      open_compiler({.host = {.cxx = program}}, "host");
      FAIL() << program;
    } catch (const DeviceUnavailable& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(std::string("at the given place: tried ") + program),
                std::string::npos)
          << message;
      EXPECT_EQ(message.find("clang++ ("), std::string::npos) << message;
    }
  }
}

TEST(HostCompiler, CountsItsVersionInTheKey) {
  const TemporaryFolder folder;
  const auto fake = fake_compiler(folder, "exit 1\n");
  EXPECT_EQ(fake->version(), "g++ 99.1.2");
  EXPECT_EQ(fake->path(), (folder / "fake").string());
  EXPECT_EQ(fake->key(store_source(), "host"),
            source_key(store_source(), "host", compile_options("host"), "g++ 99.1.2"));
  EXPECT_NE(fake->key(store_source(), "host"),
            source_key(store_source(), "host", compile_options("host"), "g++ 12.2.0"));
  EXPECT_NE(fake->key(store_source(), "host"), fake->key(store_source(), "host+debug"));
  EXPECT_NE(fake->key(store_source(), "host"), fake->key(store_source("changed\n"), "host"));
}

TEST(HostCompiler, NamesTheSignalThatEndedIt) {
  const TemporaryFolder folder;
  const auto fake = fake_compiler(folder, "echo internal compiler error >&2; kill -SEGV $$\n");
  try {
    fake->compile(store_source(), "host");
    FAIL() << "compiled by a crash";
  } catch (const CompileError& error) {
    EXPECT_NE(std::string(error.what()).find("status=signal 11 ("), std::string::npos);
    EXPECT_EQ(error.log(), "internal compiler error\n");
  }
}

TEST(HostCompiler, DoesNotBlameTheSourceForTheMachine) {
  for (const char* work :
       {"kill -KILL $$\n", "echo 'fatal error: Killed signal terminated program cc1plus'; exit 1\n",
        "echo 'a.s: No space left on device'; exit 1\n"}) {
    const TemporaryFolder folder;
    const auto fake = fake_compiler(folder, work);
    try {
      fake->compile(store_source(), "host");
      ADD_FAILURE() << "compiled: " << work;
    } catch (const CompileError& error) {
      ADD_FAILURE() << error.what();
    } catch (const Error& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("the compiler failed: source=store "))
          << error.what();
    }
  }
}

TEST(HostCompiler, ReportsThatItHasGone) {
  const TemporaryFolder folder;
  const auto fake = fake_compiler(folder, "exit 0\n");
  std::filesystem::remove(folder / "fake");
  try {
    fake->compile(store_source(), "host");
    FAIL() << "compiled with a program that is not there";
  } catch (const CompileError& error) {
    ADD_FAILURE() << error.what();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos) << error.what();
  }
}

TEST(HostCompiler, TakesNoSuccessWithoutAModule) {
  const TemporaryFolder folder;
  const auto fake = fake_compiler(folder, "exit 0\n");
  EXPECT_THROW(fake->compile(store_source(), "host"), CompileError);
}

// A container without an init process may keep it as a zombie: dead, but with a process id.
bool has_ended(pid_t pid) {
  for (int i = 0; i < 100; ++i) {
    std::string stat;
    std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), stat);
    if (stat.empty() || stat.find(") Z ") != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

CompilePoolOptions pool_options(const std::string& cxx, double timeout_s) {
  CompilePoolOptions options;
  options.num_workers = 1;
  options.timeout_s = timeout_s;
  options.compilers.host.cxx = cxx;
  return options;
}

class HostCompilePool : public HostCompilerTest {};

TEST_F(HostCompilePool, CompilesInAWorkerToTheSameBytes) {
  const TemporaryFolder folder;
  const ScopedVariable variable("TMPDIR", folder.path().string());
  CompilePool pool(pool_options(test_host_search().cxx, 100));
  std::vector<CompileJob> jobs = {{0, store_source("nosuch\n"), "host"},
                                  {1, store_source(), "host"}};
  std::size_t num_binaries = 0;
  pool.run(jobs, [&](const CompileOutcome& outcome) {
    if (outcome.id == 0) {
      EXPECT_NE(outcome.log.find("templates/x.h:1:"), std::string::npos) << outcome.log;
      EXPECT_FALSE(outcome.is_of_machine);
      return;
    }
    ASSERT_TRUE(outcome.binary.has_value()) << outcome.error;
    ++num_binaries;
    EXPECT_EQ(outcome.binary->key, compiler().key(store_source(), "host"));
    EXPECT_EQ(outcome.binary->content, compiler().compile(store_source(), "host").content);
  });
  EXPECT_EQ(num_binaries, 1u);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_F(HostCompilePool, ReportsAMissingCompilerAsTheMachines) {
  CompilePool pool(pool_options("/nowhere/c++", 100));
  pool.run({{0, store_source(), "host"}}, [](const CompileOutcome& outcome) {
    EXPECT_TRUE(outcome.error.starts_with("no C++ compiler at the given place")) << outcome.error;
    EXPECT_TRUE(outcome.is_of_machine);
  });
}

TEST_F(HostCompilePool, EndsACompilerThatHangsWithWhatItStartedAndItsFiles) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "tmp");
  const ScopedVariable variable("TMPDIR", (folder / "tmp").string());
  const auto fake =
      fake_compiler(folder, "sleep 1000 & echo $! $$ > " + (folder / "pids").string() + "\nwait\n");
  CompilePool pool(pool_options(fake->path(), 2));
  std::string problem;
  pool.run({{0, store_source(), "host"}},
           [&](const CompileOutcome& outcome) { problem = outcome.error; });
  EXPECT_EQ(problem, "the compile timed out: timeout_s=2 source=store arch=host");
  EXPECT_TRUE(std::filesystem::is_empty(folder / "tmp"));
  std::ifstream pids(folder / "pids");
  int num_pids = 0;
  for (pid_t pid = 0; pids >> pid; ++num_pids) EXPECT_TRUE(has_ended(pid)) << pid;
  EXPECT_EQ(num_pids, 2);
}

}  // namespace
}  // namespace attune
