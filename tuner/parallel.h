// A loop over independent indices on several threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace attune {

// All cores for 0, else `num_threads`.
inline int thread_count(int num_threads) {
  if (num_threads > 0) return num_threads;
  const unsigned cores = std::thread::hardware_concurrency();
  return cores == 0 ? 1 : static_cast<int>(cores);
}

// Calls body(i) for every i below `count`; threads take the next index when they are free. The
// first exception of a body ends the loop and is thrown here.
template <typename Body>
void parallel_for(std::size_t count, int num_threads, const Body& body) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        body(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    }
  };
  const auto wanted = static_cast<std::size_t>(thread_count(num_threads));
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < wanted && i < count; ++i) threads.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace attune
