// What this machine, or the container that this process runs in, has to give.
#pragma once

#include <cstddef>
#include <filesystem>

namespace attune {

struct MachineLimits {
  int cores = 1;               // that this process may run on, at least 1
  std::size_t free_bytes = 0;  // of memory, without swapping
};

// Reads /proc and the control groups (versions 1 and 2) below `root`, which is "/" but for tests.
MachineLimits machine_limits(const std::filesystem::path& root = "/");

}  // namespace attune
