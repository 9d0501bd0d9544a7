// Processes: looked at, started at once, killed at random, counted in memory that they share.
#pragma once

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace attune {

// The processes of a name that `parent` started; dead ones that nobody waited for do not count.
inline std::vector<pid_t> children_named(const std::string& name, pid_t parent = getpid()) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string text;
    if (!std::getline(file, text)) continue;
    const std::size_t begin = text.find('('), end = text.rfind(')');
    if (begin == std::string::npos || end == std::string::npos || end + 4 > text.size()) continue;
    const std::string comm = text.substr(begin + 1, end - begin - 1);
    const bool is_dead = text[end + 2] == 'Z';
    // The system keeps 15 characters. Before its program starts a child has our own name.
    if (comm == name.substr(0, 15) && !is_dead && std::atoi(text.c_str() + end + 4) == parent) {
      found.push_back(std::atoi(text.c_str()));
    }
  }
  return found;
}

// False for a dead one that nobody waited for, too.
inline bool is_running(pid_t pid) {
  std::string stat;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), stat);
  return !stat.empty() && stat.find(") Z ") == std::string::npos;
}

// Polls until `done`; false when that takes too long.
inline bool eventually(const std::function<bool()>& done, int seconds = 120) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (std::chrono::steady_clock::now() < deadline) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace attune

namespace attune::testing {

// Whether tests that repeat something take minutes for it: ATTUNE_LONG_TESTS=1.
inline bool is_long_run() {
  const char* value = std::getenv("ATTUNE_LONG_TESTS");
  return value != nullptr && std::string_view(value) == "1";
}

// A value that all forked processes see.
template <typename Value>
class SharedValue {
 public:
  SharedValue()
      : memory_(::mmap(nullptr, sizeof(Value), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                       -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    value_ = new (memory_) Value();
  }
  SharedValue(const SharedValue&) = delete;
  SharedValue& operator=(const SharedValue&) = delete;
  ~SharedValue() { ::munmap(memory_, sizeof(Value)); }
  Value& operator*() { return *value_; }
  Value* operator->() { return value_; }

 private:
  void* memory_;
  Value* value_;
};

// Runs `work` in a child, which ends with this process; its exit code is 0 unless it throws.
inline pid_t start_process(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status = 1;
  try {
    work();
    status = 0;
  } catch (const std::exception& error) {
    const std::string text = std::string(error.what()) + "\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  }
  ::_exit(status);
}

inline bool ended_well(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Runs `work(i)` in `count` processes that begin together; how many did not end well.
inline int run_processes(int count, const std::function<void(int)>& work) {
  int barrier[2];
  if (::pipe(barrier) != 0) return count;
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    children.push_back(start_process([&, i] {
      ::close(barrier[1]);
      char byte;
      [[maybe_unused]] const auto ended = ::read(barrier[0], &byte, 1);  // until all are there
      work(i);
    }));
  }
  ::close(barrier[0]);
  ::close(barrier[1]);
  int num_failed = 0;
  for (const pid_t child : children) num_failed += ended_well(child) ? 0 : 1;
  return num_failed;
}

}  // namespace attune::testing
