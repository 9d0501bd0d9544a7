// Which earlier moments of other threads a thread is ordered after: vector clocks.
//
// A thread's clock is raised at every event by which others can get to know it, so that (thread,
// clock) names a stretch of its program. Threads that left the same barrier share one vector of
// the clocks they know, so a barrier of n threads costs one vector, not n. What completes on a
// synchronization object without a thread (a bulk copy) gets its stamp from an engine, a
// pseudo-thread that belongs to the object.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace attune::host {

// Clocks by thread. Constant while more than one ClockRef holds it; back in its pool without any.
struct ClockVector {
  std::uint32_t num_owners = 0;
  std::uint32_t last_visit = 0;
  ClockVector* next_free = nullptr;
  ClockVector** first_free = nullptr;  // of the pool
  std::vector<std::uint32_t> clocks;
};

// One owner of a vector. Not thread-safe.
class ClockRef {
 public:
  ClockRef() = default;
  explicit ClockRef(ClockVector* vector) : vector_(vector) { ++vector_->num_owners; }
  ClockRef(const ClockRef& other) : vector_(other.vector_) {
    if (vector_ != nullptr) ++vector_->num_owners;
  }
  ClockRef(ClockRef&& other) noexcept : vector_(std::exchange(other.vector_, nullptr)) {}
  ClockRef& operator=(ClockRef other) noexcept {
    std::swap(vector_, other.vector_);
    return *this;
  }
  ~ClockRef() {
    if (vector_ == nullptr || --vector_->num_owners > 0) return;
    vector_->next_free = *vector_->first_free;
    *vector_->first_free = vector_;
  }
  ClockVector* get() const { return vector_; }
  ClockVector* operator->() const { return vector_; }
  explicit operator bool() const { return vector_ != nullptr; }

 private:
  ClockVector* vector_ = nullptr;
};

// One thread's clocks: its own, and those of the others.
struct ThreadClocks {
  ClockRef others;  // empty: all 0
  std::uint32_t own = 0;

  bool covers(int self, int thread, std::uint32_t clock) const {
    if (thread == self && own >= clock) return true;
    return others && others->clocks[static_cast<std::size_t>(thread)] >= clock;
  }
};

// A stretch of a thread, or a completion of an engine.
struct Stamp {
  int thread = 0;
  std::uint32_t clock = 0;
};

class HappensBefore {
 public:
  // All that is ordered before one event of a thread.
  struct Moment {
    int thread = 0;
    ThreadClocks known;
    ThreadClocks fenced;
  };

  explicit HappensBefore(int num_threads);
  HappensBefore(const HappensBefore&) = delete;
  HappensBefore& operator=(const HappensBefore&) = delete;
  void reset(int num_threads);

  Stamp now(int thread) const { return {thread, at(thread).known.own}; }
  // Whether what has this stamp is ordered before the present of `thread`.
  bool is_before(const Stamp& stamp, int thread) const {
    return at(thread).known.covers(thread, stamp.thread, stamp.clock);
  }
  // Whether a proxy fence stands on a way from there to here.
  bool is_fenced(const Stamp& stamp, int thread) const {
    return at(thread).fenced.covers(thread, stamp.thread, stamp.clock);
  }
  // The thread that began what an engine completed; the thread itself of any other stamp.
  int origin(const Stamp& stamp) const;
  int num_threads() const { return num_threads_; }
  int num_stamped() const { return num_threads_ + static_cast<int>(engines_.size()); }

  void barrier(std::span<const int> threads);
  void release(int thread, std::uint64_t sync_id);
  void acquire(int thread, std::uint64_t sync_id);
  void fence_proxy(int thread);

  // Something begins that runs beside the thread.
  Moment fork(int thread);
  // It ends, and `thread` knows.
  void join(int thread, const Moment& begin);
  // It ends, and those will know who acquire the object; the stamp is that of the end.
  Stamp end_on(std::uint64_t sync_id, const Moment& begin);

 private:
  struct Thread {
    ThreadClocks known;
    ThreadClocks fenced;  // a subset of `known`
  };
  // The clocks of an object; grow only.
  struct SyncClocks {
    std::vector<std::uint32_t> clocks;  // as long as the largest thread in it needs
    std::uint32_t version = 0;
    ClockRef last_added;  // a vector that is in it already
    // The latest result of join_sync(): threads that wait together know the same.
    ClockRef joined_from, joined;
    std::uint32_t joined_version = 0;
  };
  struct Sync {
    SyncClocks known;
    SyncClocks fenced;
    int engine = -1;
    std::vector<int> origins;  // by the engine's clock - 1
  };

  Thread& at(int thread) { return threads_[static_cast<std::size_t>(thread)]; }
  const Thread& at(int thread) const { return threads_[static_cast<std::size_t>(thread)]; }
  Sync& sync(std::uint64_t id);
  int add_engine(std::uint32_t sync_idx);

  ClockRef copy(const ClockRef& from);  // of zeros without one
  template <ThreadClocks Thread::*kKind>
  ClockRef merge(std::span<const int> threads);
  static void add(SyncClocks* to, const ThreadClocks& clocks, int thread);
  ClockRef join_sync(const ClockRef& others, SyncClocks* with);
  ClockRef join_clocks(const ClockRef& others, const ThreadClocks& with, int thread);

  // The pool outlives every ClockRef: it is declared in front of them.
  std::vector<std::unique_ptr<ClockVector>> pool_;
  std::unique_ptr<ClockVector*> first_free_ = std::make_unique<ClockVector*>(nullptr);
  std::uint32_t visit_ = 0;
  std::size_t width_ = 0;  // of every vector

  int num_threads_ = 0;
  std::vector<Thread> threads_;
  bool has_fences_ = false;  // without any, nobody keeps `fenced`
  std::unordered_map<std::uint64_t, std::uint32_t> sync_idx_;
  std::vector<Sync> syncs_;             // those from sync_idx_.size() on are of an earlier CTA
  std::vector<std::uint32_t> engines_;  // their objects
};

}  // namespace attune::host
