// A race checker for one CTA of 64 threads, and its events in short.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "jit/host/race_check.h"

namespace attune::host {

constexpr std::uint32_t kWindowBytes = 4096;
constexpr int kNumThreads = 64;

inline const void* line(std::uintptr_t number) { return reinterpret_cast<const void*>(number); }

inline std::vector<int> threads(int first, int count) {
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

inline RaceChecker::Async copy_in(std::uint32_t offset, std::uint32_t bytes = 16) {
  return {offset, bytes, true, Operation::kCpAsync, line(500)};
}
inline RaceChecker::Async bulk_load(std::uint32_t offset, std::uint32_t bytes) {
  return {offset, bytes, true, Operation::kBulkLoad, line(600)};
}
inline RaceChecker::Async bulk_store(std::uint32_t offset, std::uint32_t bytes) {
  return {offset, bytes, false, Operation::kBulkStore, line(700)};
}

class RaceFixture : public testing::Test {
 protected:
  std::optional<Race> read(int thread, std::uint32_t offset, std::uint32_t bytes = 4) {
    return checker.read(thread, offset, bytes, line(100), Operation::kLdmatrix);
  }
  std::optional<Race> write(int thread, std::uint32_t offset, std::uint32_t bytes = 4) {
    return checker.write(thread, offset, bytes, line(200));
  }
  void barrier() { checker.barrier(threads(0, kNumThreads)); }

  RaceChecker checker{kNumThreads, kWindowBytes};
};

}  // namespace attune::host
