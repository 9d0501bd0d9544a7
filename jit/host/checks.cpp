#include "jit/host/checks.h"

#include <fmt/format.h>

#include "jit/host/operations.h"
#include "jit/host/runner.h"

namespace attune::host {
namespace {

// Names of what orders threads; an object per parity, as phases follow each other.
enum class SyncKind : std::uint64_t { kBarrier = 1, kMbarrier, kCluster, kWarp };

std::uint64_t sync_id(SyncKind kind, std::uint64_t object, bool parity) {
  return static_cast<std::uint64_t>(kind) << 48 | object << 1 | std::uint64_t{parity};
}

std::uint64_t barrier_id(const Thread& thread, int index, bool parity) {
  return sync_id(SyncKind::kBarrier,
                 std::uint64_t{thread.cta->cluster_rank} << 8 | static_cast<unsigned>(index),
                 parity);
}

template <typename T>
AddressRange range_of(const T* object, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(object);
  return {begin, begin + bytes};
}

}  // namespace

Checks::Checks(const MemoryMap& memory) : memory_(memory) {}

void Checks::start(const Launch& launch, unsigned num_ctas, int num_threads,
                   std::uint32_t window_bytes) {
  const int all_threads = static_cast<int>(num_ctas) * num_threads;
  if (!races_ || num_ctas != num_ctas_ || window_bytes != window_bytes_) {
    races_.emplace(all_threads, num_ctas * window_bytes);
  } else {
    races_->reset(all_threads);
  }
  launch_ = &launch;
  num_ctas_ = num_ctas;
  num_threads_ = num_threads;
  window_bytes_ = window_bytes;
  read_only_.assign(1, {});
  read_only_.push_back(range_of(launch.params, launch.entry.params_bytes));
  read_only_.push_back(range_of(&host_abi(), sizeof(Abi)));
  for (const Region& region : launch.module->image())
    read_only_.push_back(range_of(region.begin, region.bytes));
}

int Checks::number(const Thread& thread) const {
  return static_cast<int>(thread.cta->cluster_rank) * num_threads_ + thread.index;
}

// Windows of a cluster lie behind each other. An address without a rank is of the running CTA.
std::uint32_t Checks::offset(std::uint32_t address) const {
  const std::uint32_t rank = Runner::current().cta_of(address).cluster_rank;
  return rank * window_bytes_ + offset_of(address);
}

void Checks::report(const std::optional<Race>& race) {
  if (race)
    Runner::current().fail(race_fault(*race, {Runner::current().dynamic_begin(),
                                              num_ctas_ > 1 ? window_bytes_ : 0, num_threads_}));
}

AccessScope Checks::scope(const Thread& thread) {
  read_only_[0] = range_of(&thread.place, sizeof(thread.place));
  return {range_of(thread.stack->bottom(), thread.stack->bytes()), read_only_};
}

void Checks::access(Thread& thread, const void* pointer, std::uint64_t bytes, bool is_write,
                    const void* code) {
  Runner& runner = Runner::current();
  if (const auto address = runner.find_shared(pointer)) {
    const auto size = static_cast<std::uint32_t>(bytes);
    runner.shared(*address, size, is_write ? "store" : "load", code);
    if (!is_aligned(*address, size)) {
      runner.fail(FaultKind::kMisaligned,
                  fmt::format("{} of {} bytes at shared memory offset {}",
                              is_write ? "store" : "load", size, runner.dynamic_offset(*address)),
                  code);
    }
    const std::uint32_t at = offset(*address);
    report(is_write ? races_->write(number(thread), at, size, code)
                    : races_->read(number(thread), at, size, code));
    return;
  }
  if (const auto fault = check_access(scope(thread), memory_, pointer, bytes, is_write)) {
    runner.fail(access_fault(*fault, memory_.map(), pointer, bytes, is_write, code));
  }
}

void Checks::shared_access(Thread& thread, std::uint32_t address, std::uint32_t bytes,
                           bool is_write, Operation operation) {
  const std::uint32_t at = offset(address);
  report(is_write ? races_->write(number(thread), at, bytes, thread.code, operation)
                  : races_->read(number(thread), at, bytes, thread.code, operation));
}

void Checks::global_access(Thread& thread, const void* pointer, std::uint64_t bytes,
                           bool is_write) {
  if (bytes != 0) access(thread, pointer, bytes, is_write, thread.code);
}

void Checks::atomic_access(Thread& thread, const void* pointer, std::uint32_t bytes) {
  if (const auto address = Runner::current().find_shared(pointer)) {
    report(races_->atomic(number(thread), offset(*address), bytes, thread.code));
  } else {
    access(thread, pointer, bytes, true, thread.code);
  }
}

std::uint64_t Checks::async_begin(Thread& thread, std::uint32_t address, std::uint32_t bytes,
                                  bool is_write, Operation operation) {
  const auto begun = races_->async_begin(
      number(thread), {offset(address), bytes, is_write, operation, thread.code});
  report(begun.race);
  return begun.id;
}

void Checks::async_end(Thread& thread, std::uint64_t id) {
  races_->async_end(static_cast<RaceChecker::AsyncId>(id), number(thread));
}

void Checks::async_end_on_mbarrier(std::uint64_t id, std::uint32_t address, bool parity) {
  races_->async_end_on(static_cast<RaceChecker::AsyncId>(id),
                       sync_id(SyncKind::kMbarrier, offset(address), parity));
}

void Checks::async_end_in_warp(Thread& leader, std::uint64_t id) {
  const int first = number(leader);
  const std::uint64_t waited = sync_id(SyncKind::kWarp, static_cast<unsigned>(first), false);
  races_->async_end_on(static_cast<RaceChecker::AsyncId>(id), waited);
  for (int lane = 0; lane < kLanes; ++lane) races_->acquire(first + lane, waited);
}

void Checks::fence_proxy(Thread& thread) { races_->fence_proxy(number(thread)); }

void Checks::barrier_arrive(Thread& thread, int index) {
  const Barrier& barrier = thread.cta->barriers[static_cast<std::size_t>(index)];
  races_->release(number(thread), barrier_id(thread, index, barrier.parity));
}

void Checks::barrier_complete(const Barrier& barrier, Cta& cta, int index) {
  std::vector<int> threads;
  for (const Thread* thread : barrier.waiting) threads.push_back(number(*thread));
  if (static_cast<int>(threads.size()) == barrier.num_arrived) {
    races_->barrier(threads);
    return;
  }
  const std::uint64_t id = barrier_id(cta.threads.front(), index, barrier.parity);
  for (const int thread : threads) races_->release(thread, id);
  for (const int thread : threads) races_->acquire(thread, id);
}

void Checks::sync_warp(Thread& thread, std::uint32_t lanes) {
  std::vector<int> threads;
  const int first = number(thread) - static_cast<int>(thread.place.lane);
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) != 0) threads.push_back(first + lane);
  }
  races_->barrier(threads);
}

void Checks::cluster_arrive(Thread& thread, std::uint64_t phase) {
  races_->release(number(thread), sync_id(SyncKind::kCluster, 0, (phase & 1) != 0));
}

void Checks::cluster_wait(Thread& thread, std::uint64_t phase) {
  races_->acquire(number(thread), sync_id(SyncKind::kCluster, 0, (phase & 1) != 0));
}

void Checks::mbarrier_release(Thread& thread, std::uint32_t address, bool parity) {
  races_->release(number(thread), sync_id(SyncKind::kMbarrier, offset(address), parity));
}

void Checks::mbarrier_acquire(Thread& thread, std::uint32_t address, bool parity) {
  races_->acquire(number(thread), sync_id(SyncKind::kMbarrier, offset(address), parity));
}

}  // namespace attune::host
