// Runs the attune program as a user does, with a cache of its own and, unless asked, no GPU in
// sight.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

namespace attune {

struct Finished {
  int exit_code = -1;  // 128 + signal for a program that was ended by one
  std::string out;
  std::string err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

inline std::string read_file(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The attune program: beside the tests in a build tree, in bin/ of a bundle.
inline std::filesystem::path attune_program() {
  const auto folder = std::filesystem::canonical("/proc/self/exe").parent_path();
  for (const char* relative : {"attune", "../../bin/attune"}) {
    if (access((folder / relative).c_str(), X_OK) == 0) return folder / relative;
  }
  ADD_FAILURE() << "the attune program is not near " << folder;
  return {};
}

// A temporary folder for one test.
class ProgramTest : public ::testing::Test {
 protected:
  std::filesystem::path cache() const { return folder_ / "cache" / "tune.db"; }
  std::string cache_flag() const { return "--cache=" + cache().string(); }

  // A running program whose output goes to files.
  struct Running {
    pid_t pid = -1;
    std::filesystem::path out, err;

    Finished wait() const {
      int status = 0;
      waitpid(pid, &status, 0);
      const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      return {code, read_file(out), read_file(err)};
    }
  };

  Running start(std::vector<std::string> arguments) {
    return start(attune_program().string(), std::move(arguments));
  }
  // Another program: a path, or a name to look up in PATH.
  Running start(const std::string& program, std::vector<std::string> arguments) {
    Running running;
    running.out = folder_ / ("out" + std::to_string(count_));
    running.err = folder_ / ("err" + std::to_string(count_++));
    arguments.insert(arguments.begin(), program);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    std::vector<std::string> variables = environment();
    std::vector<char*> envp;
    for (std::string& variable : variables) envp.push_back(variable.data());
    envp.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, running.out.c_str(), flags, 0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, running.err.c_str(), flags, 0600);
    EXPECT_EQ(
        posix_spawnp(&running.pid, program.c_str(), &actions, nullptr, argv.data(), envp.data()),
        0);
    posix_spawn_file_actions_destroy(&actions);
    return running;
  }

  Finished run(std::vector<std::string> arguments) { return start(std::move(arguments)).wait(); }

  TemporaryFolder folder_;
  std::vector<std::string> more_environment_;  // NAME=value
  bool hide_gpus_ = true;                      // results must not depend on the machine

 private:
  // Ours, but for what names a cache.
  std::vector<std::string> environment() const {
    std::vector<std::string> variables = {"XDG_CACHE_HOME=" + (folder_ / "xdg").string()};
    if (hide_gpus_) variables.emplace_back("CUDA_VISIBLE_DEVICES=");
    variables.insert(variables.end(), more_environment_.begin(), more_environment_.end());
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string_view text(*entry);
      const bool replaced = text.starts_with("ATTUNE_CACHE") || text.starts_with("XDG_CACHE") ||
                            text.starts_with("ATTUNE_DEVICE") ||
                            (hide_gpus_ && text.starts_with("CUDA_VISIBLE"));
      if (!replaced) variables.emplace_back(text);
    }
    return variables;
  }

  int count_ = 0;
};

}  // namespace attune
