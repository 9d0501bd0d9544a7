// Vector clocks: which earlier moments of other threads a thread is ordered after.
//
// A thread's clock counts the times at which others could have got to know it, so (thread, clock)
// names a stretch of its program between two of them. Threads that came from the same barrier
// share one vector, so a barrier of n threads costs one vector and n clocks, not n vectors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace attune::host {

// A vector of clocks by thread; never changes while more than one owner holds it. One thread
// counts, since a checker belongs to one.
struct ClockVector {
  std::uint32_t owners = 0;
  std::uint32_t visit = 0;
  std::vector<std::uint32_t> clocks;
};

class ClockRef {
 public:
  ClockRef() = default;
  explicit ClockRef(ClockVector* vector) : vector_(vector) { ++vector_->owners; }
  ClockRef(const ClockRef& other) : vector_(other.vector_) {
    if (vector_ != nullptr) ++vector_->owners;
  }
  ClockRef(ClockRef&& other) noexcept : vector_(other.vector_) { other.vector_ = nullptr; }
  ClockRef& operator=(ClockRef other) noexcept {
    std::swap(vector_, other.vector_);
    return *this;
  }
  ~ClockRef() {
    if (vector_ != nullptr) --vector_->owners;
  }
  ClockVector* get() const { return vector_; }
  ClockVector* operator->() const { return vector_; }

 private:
  ClockVector* vector_ = nullptr;
};

}  // namespace attune::host
