// What is checked while CTAs run: every access to memory, and that accesses to shared memory are
// ordered. Tells the race checker what the operations of a kernel mean.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "jit/host/access_check.h"
#include "jit/host/cta.h"
#include "jit/host/memory_map.h"
#include "jit/host/race_check.h"

namespace attune::host {

struct Launch;

// Of one runner. Addresses of shared memory are cluster addresses. A fault ends the launch: the
// call does not return.
class Checks {
 public:
  explicit Checks(const MemoryMap& memory);

  // A cluster begins: CTAs of as many threads and windows of so many bytes.
  void start(const Launch& launch, unsigned num_ctas, int num_threads, std::uint32_t window_bytes);

  // A load or store of the kernel's own code.
  void access(Thread& thread, const void* pointer, std::uint64_t bytes, bool is_write,
              const void* code);
  // What an operation of the table touches.
  void shared_access(Thread& thread, std::uint32_t address, std::uint32_t bytes, bool is_write,
                     Operation operation);
  void global_access(Thread& thread, const void* pointer, std::uint64_t bytes, bool is_write);
  void atomic_access(Thread& thread, const void* pointer, std::uint32_t bytes);

  std::uint64_t async_begin(Thread& thread, std::uint32_t address, std::uint32_t bytes,
                            bool is_write, Operation operation);
  void async_end(Thread& thread, std::uint64_t id);
  void async_end_on_mbarrier(std::uint64_t id, std::uint32_t address, bool parity);
  // All lanes of the warp that `leader` is the first of have waited for it.
  void async_end_in_warp(Thread& leader, std::uint64_t id);
  void fence_proxy(Thread& thread);

  void barrier_arrive(Thread& thread, int index);
  void barrier_complete(const Barrier& barrier, Cta& cta, int index);
  void sync_warp(Thread& thread, std::uint32_t lanes);
  void cluster_arrive(Thread& thread, std::uint64_t phase);
  void cluster_wait(Thread& thread, std::uint64_t phase);
  void mbarrier_release(Thread& thread, std::uint32_t address, bool parity);
  void mbarrier_acquire(Thread& thread, std::uint32_t address, bool parity);

 private:
  int number(const Thread& thread) const;
  std::uint32_t offset(std::uint32_t address) const;
  AccessScope scope(const Thread& thread);
  void report(const std::optional<Race>& race);

  MemoryView memory_;
  std::optional<RaceChecker> races_;
  const Launch* launch_ = nullptr;
  unsigned num_ctas_ = 0;
  int num_threads_ = 0;                  // of a CTA
  std::uint32_t window_bytes_ = 0;       // of a CTA
  std::vector<AddressRange> read_only_;  // the place of the running thread first
};

}  // namespace attune::host
