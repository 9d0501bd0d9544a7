// The OS threads of the host device. CTAs, or clusters of them, spread over them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "jit/host/memory_map.h"
#include "jit/host/runner.h"

namespace attune::host {

class LaunchPool {
 public:
  // `memory`: checks every access against it; nullptr: checks nothing.
  LaunchPool(int num_workers, const MemoryMap* memory);
  LaunchPool(const LaunchPool&) = delete;
  LaunchPool& operator=(const LaunchPool&) = delete;
  ~LaunchPool();

  // Runs the whole grid, one launch at a time. Returns the first thing that went wrong; CTAs that
  // had not begun by then do not run. Throws Error when there is no memory for the stacks of a
  // CTA's threads.
  std::optional<Fault> run(const Launch& launch);

 private:
  void work(const MemoryMap* memory);
  bool has_failed() const { return fault_ || error_; }

  std::mutex launch_mutex_;
  std::mutex mutex_;
  std::condition_variable begin_, end_;
  const Launch* launch_ = nullptr;
  std::uint64_t next_ = 0, count_ = 0;
  int num_busy_ = 0;
  bool stop_ = false;
  std::optional<Fault> fault_;
  std::exception_ptr error_;  // thrown where a worker could not run a CTA
  std::vector<std::thread> workers_;
};

}  // namespace attune::host
