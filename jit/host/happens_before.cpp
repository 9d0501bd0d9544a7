#include "jit/host/happens_before.h"

#include <algorithm>
#include <cassert>

namespace attune::host {
namespace {

// Room for engines behind the threads, before the first regrowth of all vectors.
constexpr std::size_t kSpareClocks = 64;

void raise(std::uint32_t* clock, std::uint32_t to) { *clock = std::max(*clock, to); }

void raise_all(std::vector<std::uint32_t>* clocks, const std::vector<std::uint32_t>& to) {
  if (clocks->size() < to.size()) clocks->resize(to.size());
  std::uint32_t* const out = clocks->data();
  const std::uint32_t* const in = to.data();
  for (std::size_t i = 0; i < to.size(); ++i) out[i] = std::max(out[i], in[i]);
}

void raise_one(std::vector<std::uint32_t>* clocks, int thread, std::uint32_t to) {
  const auto at = static_cast<std::size_t>(thread);
  if (clocks->size() <= at) clocks->resize(at + 1);
  raise(&(*clocks)[at], to);
}

bool covers_all(const std::vector<std::uint32_t>& clocks, const std::vector<std::uint32_t>& of) {
  assert(clocks.size() >= of.size());
  for (std::size_t i = 0; i < of.size(); ++i) {
    if (clocks[i] < of[i]) return false;
  }
  return true;
}

}  // namespace

HappensBefore::HappensBefore(int num_threads) { reset(num_threads); }

void HappensBefore::reset(int num_threads) {
  assert(num_threads > 0);
  for (Sync& one : syncs_) one.known.last_added = one.known.joined_from = one.known.joined = {};
  for (Sync& one : syncs_) one.fenced.last_added = one.fenced.joined_from = one.fenced.joined = {};
  threads_.clear();
  sync_idx_.clear();
  engines_.clear();
  has_fences_ = false;
  num_threads_ = num_threads;
  const auto num_clocks = static_cast<std::size_t>(num_threads) + kSpareClocks;
  if (width_ < num_clocks) {
    width_ = num_clocks;
    for (const auto& vector : pool_) vector->clocks.resize(width_);
  }
  threads_.resize(static_cast<std::size_t>(num_threads), Thread{{{}, 1}, {}});
}

int HappensBefore::origin(const Stamp& stamp) const {
  if (stamp.thread < num_threads_) return stamp.thread;
  const Sync& one = syncs_[engines_[static_cast<std::size_t>(stamp.thread - num_threads_)]];
  return one.origins[stamp.clock - 1];
}

ClockRef HappensBefore::copy(const ClockRef& from) {
  if (*first_free_ == nullptr) {
    pool_.push_back(std::make_unique<ClockVector>());
    pool_.back()->first_free = first_free_.get();
    pool_.back()->clocks.resize(width_);
    *first_free_ = pool_.back().get();
  }
  ClockVector* const vector = *first_free_;
  *first_free_ = vector->next_free;
  if (from) {
    std::copy(from->clocks.begin(), from->clocks.end(), vector->clocks.begin());
  } else {
    std::fill(vector->clocks.begin(), vector->clocks.end(), 0u);
  }
  return ClockRef(vector);
}

// What all of `threads` together know. Most of them share a vector, which is added once.
template <ThreadClocks HappensBefore::Thread::*kKind>
ClockRef HappensBefore::merge(std::span<const int> threads) {
  const ClockRef& first = (at(threads.front()).*kKind).others;
  ClockRef merged = copy(first);
  ++visit_;
  if (first) first->last_visit = visit_;
  for (const int thread : threads) {
    const ClockRef& others = (at(thread).*kKind).others;
    if (!others || others->last_visit == visit_) continue;
    others->last_visit = visit_;
    raise_all(&merged->clocks, others->clocks);
  }
  for (const int thread : threads) {
    raise(&merged->clocks[static_cast<std::size_t>(thread)], (at(thread).*kKind).own);
  }
  return merged;
}

void HappensBefore::barrier(std::span<const int> threads) {
  if (threads.empty()) return;
  const ClockRef known = merge<&Thread::known>(threads);
  const ClockRef fenced = has_fences_ ? merge<&Thread::fenced>(threads) : ClockRef();
  for (const int thread : threads) {
    at(thread).known.others = known;
    at(thread).fenced.others = fenced;
    ++at(thread).known.own;
  }
}

HappensBefore::Sync& HappensBefore::sync(std::uint64_t id) {
  const auto [found, is_added] =
      sync_idx_.try_emplace(id, static_cast<std::uint32_t>(sync_idx_.size()));
  const std::uint32_t idx = found->second;
  if (!is_added) return syncs_[idx];
  if (idx == syncs_.size()) syncs_.emplace_back();
  Sync& one = syncs_[idx];
  for (SyncClocks* clocks : {&one.known, &one.fenced}) {
    clocks->clocks.clear();
    clocks->version = 0;
  }
  one.engine = -1;
  one.origins.clear();
  return one;
}

void HappensBefore::add(SyncClocks* to, const ThreadClocks& clocks, int thread) {
  if (clocks.others && to->last_added.get() != clocks.others.get()) {
    raise_all(&to->clocks, clocks.others->clocks);
    to->last_added = clocks.others;
  }
  raise_one(&to->clocks, thread, clocks.own);
  ++to->version;
}

void HappensBefore::release(int thread, std::uint64_t sync_id) {
  Sync& one = sync(sync_id);
  add(&one.known, at(thread).known, thread);
  if (has_fences_) add(&one.fenced, at(thread).fenced, thread);
  ++at(thread).known.own;
}

ClockRef HappensBefore::join_sync(const ClockRef& others, SyncClocks* with) {
  if (with->version == 0) return others;
  if (with->joined && with->joined_from.get() == others.get() &&
      with->joined_version == with->version) {
    return with->joined;
  }
  ClockRef joined = others;
  if (!others || !covers_all(others->clocks, with->clocks)) {
    joined = copy(others);
    raise_all(&joined->clocks, with->clocks);
  }
  with->joined_from = others;
  with->joined_version = with->version;
  with->joined = joined;
  return joined;
}

void HappensBefore::acquire(int thread, std::uint64_t sync_id) {
  Sync& one = sync(sync_id);
  at(thread).known.others = join_sync(at(thread).known.others, &one.known);
  at(thread).fenced.others = join_sync(at(thread).fenced.others, &one.fenced);
}

void HappensBefore::fence_proxy(int thread) {
  has_fences_ = true;
  at(thread).fenced = at(thread).known;
  ++at(thread).known.own;
}

HappensBefore::Moment HappensBefore::fork(int thread) {
  Moment begin{thread, at(thread).known, at(thread).fenced};
  ++at(thread).known.own;
  return begin;
}

ClockRef HappensBefore::join_clocks(const ClockRef& others, const ThreadClocks& with, int thread) {
  ClockRef joined = copy(others);
  if (with.others) raise_all(&joined->clocks, with.others->clocks);
  raise(&joined->clocks[static_cast<std::size_t>(thread)], with.own);
  return joined;
}

void HappensBefore::join(int thread, const Moment& begin) {
  if (thread == begin.thread) return;  // its own past
  Thread& waiter = at(thread);
  waiter.known.others = join_clocks(waiter.known.others, begin.known, begin.thread);
  if (has_fences_) {
    waiter.fenced.others = join_clocks(waiter.fenced.others, begin.fenced, begin.thread);
  }
}

int HappensBefore::add_engine(std::uint32_t sync_idx) {
  engines_.push_back(sync_idx);
  if (static_cast<std::size_t>(num_stamped()) > width_) {
    width_ += kSpareClocks;
    for (const auto& vector : pool_) vector->clocks.resize(width_);
  }
  return num_stamped() - 1;
}

Stamp HappensBefore::end_on(std::uint64_t sync_id, const Moment& begin) {
  Sync& one = sync(sync_id);
  if (one.engine < 0) one.engine = add_engine(sync_idx_.at(sync_id));
  one.origins.push_back(begin.thread);
  const Stamp end{one.engine, static_cast<std::uint32_t>(one.origins.size())};
  add(&one.known, begin.known, begin.thread);
  raise_one(&one.known.clocks, end.thread, end.clock);
  if (has_fences_) add(&one.fenced, begin.fenced, begin.thread);
  return end;
}

}  // namespace attune::host
