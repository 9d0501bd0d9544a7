// Looks at processes of this machine.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
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
