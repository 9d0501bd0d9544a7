// What tests of OnMiss::kBackground share: workers that are shell scripts, and waiting for them.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/attune.h"
#include "tests/support/processes.h"
#include "tests/support/temporary_folder.h"

namespace attune {

// Ends after the file `go` appears beside it, so that a test decides when a worker has finished.
class ScriptedWorker {
 public:
  // `action` runs after `go`; "$CACHE" is the cache file that the worker was given.
  explicit ScriptedWorker(const std::string& action) {
    path_ = folder_.write_script("attune-tune-worker", R"(
here=$(dirname "$0")
echo "$@" >> "$here/calls"
while [ $# -gt 0 ]; do
  if [ "$1" = --cache ]; then CACHE=$2; fi
  shift 2
done
while [ ! -e "$here/go" ]; do sleep 0.02; done
)" + action + "\n");
  }
  std::string path() const { return path_.string(); }
  void go() const { folder_.write("go", ""); }
  // The arguments of every start so far, a line each.
  std::vector<std::string> calls() const {
    std::vector<std::string> lines;
    std::ifstream file(folder_ / "calls");
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

 private:
  TemporaryFolder folder_;
  std::filesystem::path path_;
};

// TMPDIR is a folder of the test's own while it lives.
class OwnTmpdir {
 public:
  OwnTmpdir() {
    if (const char* value = std::getenv("TMPDIR")) before_ = value;
    setenv("TMPDIR", folder_.path().c_str(), 1);
  }
  ~OwnTmpdir() {
    if (before_.empty()) {
      unsetenv("TMPDIR");
    } else {
      setenv("TMPDIR", before_.c_str(), 1);
    }
  }
  OwnTmpdir(const OwnTmpdir&) = delete;
  OwnTmpdir& operator=(const OwnTmpdir&) = delete;
  const std::filesystem::path& path() const { return folder_.path(); }
  // But for folders of tests.
  bool is_empty() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      if (!entry.path().filename().string().starts_with("attune-test-")) return false;
    }
    return true;
  }

 private:
  TemporaryFolder folder_;
  std::string before_;
};

inline bool is_idle(const BackgroundProgress& progress) {
  return progress.waiting + progress.running == 0;
}

// This process has no child, alive or dead, that nobody waited for.
inline bool has_no_child() { return waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD; }

}  // namespace attune
