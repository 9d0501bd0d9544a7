// Finds accesses to shared memory that nothing orders: two of them, one location, one a write.
//
// Happens-before detection with vector clocks. An earlier access is ordered before a later one
// when a chain of program order and of the events below leads from one to the other; threads of
// one warp are as unordered as any others. Exact for the order of events that it is fed, byte by
// byte: every pair that nothing orders is reported at its second access, and no other.
//
// Source  FastTrack (Flanagan and Freund, 2009) for comparing against the latest accesses only;
//         the asynchronous operations and the proxies follow PTX ISA 9.0.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/host/fault.h"
#include "jit/host/happens_before.h"
#include "jit/host/shared_shadow.h"

namespace attune::host {

struct RaceSide {
  int thread = 0;  // that executed the instruction, also for what a copy engine does for it
  Operation operation = Operation::kLoad;
  bool is_write = false;
  bool is_in_flight = false;   // begun, and not waited for by anybody
  const void* code = nullptr;  // return address in the kernel
  std::uint32_t offset = 0;    // of an earlier access the part that nobody has overwritten since
  std::uint32_t bytes = 0;
};

struct Race {
  bool is_missing_fence = false;  // ordered, but not by fence.proxy.async
  RaceSide earlier;
  RaceSide later;
  std::uint32_t offset = 0;  // of the first byte of both
};

struct Uninitialized {
  std::uint32_t offset = 0;  // of the first byte that nobody has written
};

// One CTA, or the CTAs of one cluster. A thread is its index, an offset that in the window; in a
// cluster the caller numbers threads and windows through. Not thread-safe.
class RaceChecker {
 public:
  using AsyncId = std::uint32_t;

  RaceChecker(int num_threads, std::uint32_t window_bytes);
  ~RaceChecker();
  RaceChecker(RaceChecker&&) noexcept;
  RaceChecker& operator=(RaceChecker&&) noexcept;

  // Forgets everything but its memory, for the next CTA.
  void reset(int num_threads);

  // Accesses of a thread, before they happen. A race does not stop the checker: the later access
  // takes the place of the earlier.
  std::optional<Race> read(int thread, std::uint32_t offset, std::uint32_t bytes, const void* code,
                           Operation operation = Operation::kLoad);
  std::optional<Race> write(int thread, std::uint32_t offset, std::uint32_t bytes, const void* code,
                            Operation operation = Operation::kStore);
  // Does not race with other atomics, and orders nothing.
  std::optional<Race> atomic(int thread, std::uint32_t offset, std::uint32_t bytes,
                             const void* code);

  // Everything that one of `threads` did is ordered before everything that one of them will do:
  // bar.sync, __syncwarp, a cluster barrier.
  void barrier(std::span<const int> threads);
  // What `thread` did until its release is ordered before what another does after its acquire of
  // the same object, when the acquire is fed later. A barrier with phases (mbarrier, bar.arrive)
  // takes an object per parity, else early arrivals of the next phase would count for this one.
  void release(int thread, std::uint64_t sync_id);
  void acquire(int thread, std::uint64_t sync_id);

  // What a copy engine or a tensor core does for `thread` from now on. Ordered after what the
  // thread did until now; until its end it races with every conflicting access, those of
  // `thread` too.
  struct Async {
    std::uint32_t offset = 0;
    std::uint32_t bytes = 0;
    bool is_write = false;
    Operation operation = Operation::kCpAsync;
    const void* code = nullptr;
  };
  struct Begun {
    AsyncId id = 0;
    std::optional<Race> race;
  };
  Begun async_begin(int thread, const Async& async);
  // It is complete, and `thread` knows: wait_group.
  void async_end(AsyncId id, int thread);
  // It is complete, and those know who acquire the object from now on: complete_tx,
  // cp.async.mbarrier.arrive; a wait_group of a whole warp is this and an acquire by every lane.
  void async_end_on(AsyncId id, std::uint64_t sync_id);

  // fence.proxy.async: generic accesses ordered before it are ordered before async-proxy
  // operations ordered after it. It may stand anywhere on the way from one to the other.
  void fence_proxy(int thread);

  // The first byte of a read that no access has written since reset().
  std::optional<Uninitialized> uninitialized(std::uint32_t offset, std::uint32_t bytes) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// "write of 4 bytes at shared offset 288 (st) while ... : read of 16 bytes at 288 by thread 5
// (ldmatrix) at file:line"
std::string to_text(const Race& race);

// The fault of a race, without kernel, block and thread.
Fault race_fault(const Race& race);

}  // namespace attune::host
