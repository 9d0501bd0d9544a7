#include "jit/host/race_check.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <utility>
#include <vector>

#include "jit/host/happens_before.h"

namespace attune::host {
namespace {

enum class AccessKind { kRead, kWrite, kAtomic };

struct Access {
  AccessKind kind;
  int thread;
  std::uint32_t offset, bytes;
  const void* code;
  Operation operation;
  bool is_in_flight = false;
  RaceChecker::AsyncId id = 0;  // in flight
};

bool is_async(Operation operation) {
  return operation == Operation::kCpAsync || is_async_proxy(operation);
}

// Whether one of the latest records is of the same stretch and says no less: what a thread reads
// again and again is recorded once, and a full list is rare.
bool is_known(RecordList* shared, const AccessRecord& record) {
  constexpr std::ptrdiff_t kNumLatest = kGranuleBytes / 4;
  const AccessRecord* const end = shared->end();
  const AccessRecord* const begin = shared->begin();
  const AccessRecord* const last = end - std::min(end - begin, kNumLatest);
  for (const AccessRecord* one = end; one-- != last;) {
    if (one->stretch() == record.stretch() && one->is_atomic() == record.is_atomic() &&
        (one->mask() & record.mask()) == record.mask()) {
      return true;
    }
  }
  return false;
}

// An earlier access that a later one may not follow.
struct Conflict {
  RaceKind kind;
  bool is_write;
  std::uint32_t granule;
  AccessRecord record;
};

}  // namespace

class RaceChecker::Impl {
 public:
  Impl(int num_threads, std::uint32_t window_bytes) : order(num_threads), shadow(window_bytes) {}

  void reset(int num_threads);
  std::optional<Race> touch(const Access& access);
  AsyncId begin(int thread, const Async& async);
  AsyncId next_id() const;
  void end(AsyncId id, const Stamp& stamp);

  HappensBefore order;
  SharedShadow shadow;
  struct Running {
    Async async;
    HappensBefore::Moment begin;
  };
  std::vector<Running> running;  // by id; those that are free hold nothing
  std::vector<AsyncId> free_ids;

 private:
  AccessRecord record_of(const Access& access) const;
  // The state of `earlier` in the eyes of an access to the same bytes.
  std::optional<RaceKind> judge(const AccessRecord& earlier, bool is_write,
                                const Access& access) const;
  static Stamp stamp_of(const AccessRecord& record) {
    return {static_cast<int>(record.thread()), record.clock()};
  }
  bool is_before(const AccessRecord& earlier, int thread) const {  // not of one in flight
    return order.is_before(stamp_of(earlier), thread);
  }
  void touch_shared(Granule* granule, std::uint32_t granule_idx, const AccessRecord& record,
                    const Access& access, std::optional<Conflict>* conflict);
  void touch_write(Granule* granule, std::uint32_t granule_idx, const AccessRecord& record,
                   const Access& access, std::optional<Conflict>* conflict);
  void prune(RecordList* shared, const AccessRecord& latest, int thread);
  Race race_of(const Conflict& conflict, const Access& access) const;

  // For prune(): the bytes of each thread's later records, of reads and of atomics.
  std::vector<std::array<std::uint32_t, 2>> covered_;
};

void RaceChecker::Impl::reset(int num_threads) {
  running.clear();
  free_ids.clear();
  shadow.reset();
  order.reset(num_threads);
}

AccessRecord RaceChecker::Impl::record_of(const Access& access) const {
  if (access.is_in_flight) {
    return {access.code, access.operation, AccessRecord::kInFlight, access.id};
  }
  return {access.code, access.operation, static_cast<std::uint32_t>(access.thread),
          order.now(access.thread).clock};
}

std::optional<RaceKind> RaceChecker::Impl::judge(const AccessRecord& earlier, bool is_write,
                                                 const Access& access) const {
  if (earlier.is_in_flight()) return RaceKind::kInFlight;
  if (!is_before(earlier, access.thread)) return RaceKind::kUnordered;
  if (is_write && is_async_proxy(access.operation) && !is_async_proxy(earlier.operation()) &&
      !order.is_fenced(stamp_of(earlier), access.thread)) {
    return RaceKind::kMissingFence;
  }
  return std::nullopt;
}

// A read or an atomic. Writes are checked, and the records of the other kind when one is atomic.
void RaceChecker::Impl::touch_shared(Granule* granule, std::uint32_t granule_idx,
                                     const AccessRecord& record, const Access& access,
                                     std::optional<Conflict>* conflict) {
  const auto check = [&](const AccessRecord& earlier, bool is_write) {
    if ((earlier.mask() & record.mask()) == 0) return;
    const std::optional<RaceKind> kind = judge(earlier, is_write, access);
    if (kind && !*conflict) *conflict = Conflict{*kind, is_write, granule_idx, earlier};
  };
  for (const AccessRecord& earlier : granule->writes) check(earlier, true);
  const bool is_atomic = record.is_atomic();
  RecordList& shared = granule->shared;
  if (is_atomic || granule->has_atomics) {
    for (const AccessRecord& earlier : shared) {
      if (earlier.is_atomic() != is_atomic) check(earlier, !is_atomic);
    }
  }
  if (is_atomic) granule->has_atomics = true;
  if (is_known(&shared, record)) return;
  if (shared.is_full()) prune(&shared, record, access.thread);
  shared.push_back(record);
}

// Takes the place of every record of its bytes.
void RaceChecker::Impl::touch_write(Granule* granule, std::uint32_t granule_idx,
                                    const AccessRecord& record, const Access& access,
                                    std::optional<Conflict>* conflict) {
  // Nobody else can have touched the bytes since a write of this very stretch without a race. (A
  // copy that ended in it is of another operation, and maybe of another proxy.)
  for (const AccessRecord& earlier : granule->writes) {
    if (earlier.stretch() == record.stretch() && earlier.operation() == record.operation() &&
        (earlier.mask() & record.mask()) == record.mask()) {
      return;
    }
  }
  const auto replace = [&](AccessRecord& earlier, bool is_write) {
    if ((earlier.mask() & record.mask()) == 0) return;
    const std::optional<RaceKind> kind = judge(earlier, is_write, access);
    if (kind && !*conflict) *conflict = Conflict{*kind, is_write, granule_idx, earlier};
    earlier.drop_bytes(record.mask());
  };
  granule->writes.filter([&](AccessRecord& earlier) { replace(earlier, true); });
  granule->shared.filter([&](AccessRecord& earlier) { replace(earlier, earlier.is_atomic()); });
  granule->writes.push_back(record);
}

// Drops what no later access has to be checked against: bytes of records that are ordered before
// `latest` and of its kind, and of those that are followed by one of the same thread and kind.
// Only called when the list is full, so a read costs no more than a few comparisons on average.
void RaceChecker::Impl::prune(RecordList* shared, const AccessRecord& latest, int thread) {
  covered_.resize(static_cast<std::size_t>(order.num_stamped()));
  for (AccessRecord* record = shared->end(); record-- != shared->begin();) {
    if (record->is_in_flight()) continue;
    if (record->is_atomic() == latest.is_atomic() && is_before(*record, thread)) {
      record->drop_bytes(latest.mask());
    }
    std::uint32_t& covered = covered_[record->thread()][record->is_atomic() ? 1 : 0];
    record->drop_bytes(covered);
    covered |= record->mask();
  }
  for (const AccessRecord& record : *shared) {
    if (!record.is_in_flight()) covered_[record.thread()] = {};
  }
  shared->filter([](const AccessRecord&) {});
  if (shared->is_half_full()) shared->grow();
}

std::optional<Race> RaceChecker::Impl::touch(const Access& access) {
  assert(access.thread >= 0 && access.thread < order.num_threads());
  std::optional<Conflict> conflict;
  const AccessRecord record = record_of(access);
  for_each_granule(access.offset, access.bytes, [&](std::uint32_t idx, std::uint32_t mask) {
    Granule& granule = shadow.at(idx);
    if (access.kind == AccessKind::kWrite) {
      touch_write(&granule, idx, record.of_bytes(mask), access, &conflict);
    } else {
      touch_shared(&granule, idx, record.of_bytes(mask), access, &conflict);
    }
  });
  if (!conflict) return std::nullopt;
  return race_of(*conflict, access);
}

Race RaceChecker::Impl::race_of(const Conflict& conflict, const Access& access) const {
  Race race;
  race.kind = conflict.kind;
  race.later = {access.thread,
                access.operation,
                access.kind != AccessKind::kRead,
                is_async(access.operation),
                access.code,
                access.offset,
                access.bytes};
  const AccessRecord& record = conflict.record;
  const Operation operation = record.operation();
  if (record.is_in_flight()) {
    const Running& one = running[record.clock()];
    race.earlier = {one.begin.thread, operation,        one.async.is_write, true,
                    one.async.code,   one.async.offset, one.async.bytes};
    return race;
  }
  const auto first = static_cast<std::uint32_t>(std::countr_zero(record.mask()));
  race.earlier = {order.origin(stamp_of(record)),
                  operation,
                  conflict.is_write,
                  is_async(operation),
                  record.code(),
                  conflict.granule * kGranuleBytes + first,
                  static_cast<std::uint32_t>(std::bit_width(record.mask())) - first};
  return race;
}

RaceChecker::AsyncId RaceChecker::Impl::next_id() const {
  return free_ids.empty() ? static_cast<AsyncId>(running.size()) : free_ids.back();
}

RaceChecker::AsyncId RaceChecker::Impl::begin(int thread, const Async& async) {
  const AsyncId id = next_id();
  if (free_ids.empty()) {
    running.emplace_back();
  } else {
    free_ids.pop_back();
  }
  running[id] = {async, order.fork(thread)};
  return id;
}

// The records of the operation become those of an ordinary access with this stamp.
void RaceChecker::Impl::end(AsyncId id, const Stamp& stamp) {
  const Async async = running[id].async;
  running[id] = {};
  free_ids.push_back(id);
  for_each_granule(async.offset, async.bytes, [&](std::uint32_t granule_idx, std::uint32_t) {
    Granule& granule = shadow.at(granule_idx);
    RecordList& list = async.is_write ? granule.writes : granule.shared;
    AccessRecord ended;
    list.filter([&](AccessRecord& record) {
      if (!record.is_in_flight() || record.clock() != id) return;
      ended = record;
      record.drop_bytes(record.mask());
    });
    if (ended.mask() == 0) return;  // a race has taken its place
    // Last in the list, since prune() takes it for later than what its thread did before.
    list.push_back(ended.of_stretch(static_cast<std::uint32_t>(stamp.thread), stamp.clock));
  });
}

RaceChecker::RaceChecker(int num_threads, std::uint32_t window_bytes)
    : impl_(std::make_unique<Impl>(num_threads, window_bytes)) {}
RaceChecker::~RaceChecker() = default;
RaceChecker::RaceChecker(RaceChecker&&) noexcept = default;
RaceChecker& RaceChecker::operator=(RaceChecker&&) noexcept = default;

void RaceChecker::reset(int num_threads) { impl_->reset(num_threads); }

std::optional<Race> RaceChecker::read(int thread, std::uint32_t offset, std::uint32_t bytes,
                                      const void* code, Operation operation) {
  return impl_->touch({AccessKind::kRead, thread, offset, bytes, code, operation});
}

std::optional<Race> RaceChecker::write(int thread, std::uint32_t offset, std::uint32_t bytes,
                                       const void* code, Operation operation) {
  return impl_->touch({AccessKind::kWrite, thread, offset, bytes, code, operation});
}

std::optional<Race> RaceChecker::atomic(int thread, std::uint32_t offset, std::uint32_t bytes,
                                        const void* code) {
  return impl_->touch({AccessKind::kAtomic, thread, offset, bytes, code, Operation::kAtomic});
}

void RaceChecker::barrier(std::span<const int> threads) { impl_->order.barrier(threads); }

void RaceChecker::release(int thread, std::uint64_t sync_id) {
  impl_->order.release(thread, sync_id);
}

void RaceChecker::acquire(int thread, std::uint64_t sync_id) {
  impl_->order.acquire(thread, sync_id);
}

void RaceChecker::fence_proxy(int thread) { impl_->order.fence_proxy(thread); }

RaceChecker::Begun RaceChecker::async_begin(int thread, const Async& async) {
  const AccessKind kind = async.is_write ? AccessKind::kWrite : AccessKind::kRead;
  // The check sees the thread as it was before the operation forked from it.
  Begun begun;
  begun.id = impl_->next_id();
  begun.race = impl_->touch(
      {kind, thread, async.offset, async.bytes, async.code, async.operation, true, begun.id});
  impl_->begin(thread, async);
  return begun;
}

void RaceChecker::async_end(AsyncId id, int thread) {
  impl_->order.join(thread, impl_->running[id].begin);
  impl_->end(id, impl_->order.now(thread));
}

void RaceChecker::async_end_on(AsyncId id, std::uint64_t sync_id) {
  impl_->end(id, impl_->order.end_on(sync_id, impl_->running[id].begin));
}

}  // namespace attune::host
