// Finds accesses to shared memory that nothing orders: two of them, one location, one a write.
//
// An earlier access is ordered before a later one when a chain of program order and of the events
// below leads from one to the other; threads of a warp are as unordered as any others. The
// checker is exact for the order in which it is fed, byte by byte: it reports an access when, and
// only when, an earlier one conflicts with it and is not ordered before it.
//
// Source  FastTrack (Flanagan and Freund, 2009), for keeping only the latest accesses: what is
//         ordered before a stronger access to the same bytes needs no check of its own.
//         Asynchronous operations and proxies follow PTX ISA 9.0.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "jit/host/fault.h"
#include "jit/host/shared_shadow.h"

namespace attune::host {

struct RaceSide {
  int thread = 0;  // that executed the instruction, also of what a copy engine does for it
  Operation operation = Operation::kLoad;
  bool is_write = false;
  bool is_async = false;
  const void* code = nullptr;  // return address in the kernel
  std::uint32_t offset = 0;    // of an earlier one: of what is left of it in 16 bytes
  std::uint32_t bytes = 0;
};

enum class RaceKind {
  kUnordered,
  kInFlight,      // the earlier one is asynchronous, and nobody has waited for it
  kMissingFence,  // ordered, but fence.proxy.async is not on the way from one to the other
};

struct Race {
  RaceKind kind = RaceKind::kUnordered;
  RaceSide earlier;
  RaceSide later;
};

// One CTA, or the CTAs of one cluster, which number their threads and windows through. Not
// thread-safe. Offsets are inside the window; code addresses below 2^48.
class RaceChecker {
 public:
  using AsyncId = std::uint32_t;

  RaceChecker(int num_threads, std::uint32_t window_bytes);
  ~RaceChecker();
  RaceChecker(RaceChecker&&) noexcept;
  RaceChecker& operator=(RaceChecker&&) noexcept;

  // Forgets everything but its memory, for the next CTA.
  void reset(int num_threads);

  // Accesses of a thread. A race does not stop the checker: the later access is recorded too.
  std::optional<Race> read(int thread, std::uint32_t offset, std::uint32_t bytes, const void* code,
                           Operation operation = Operation::kLoad);
  std::optional<Race> write(int thread, std::uint32_t offset, std::uint32_t bytes, const void* code,
                            Operation operation = Operation::kStore);
  // Does not race with other atomics, and orders nothing.
  std::optional<Race> atomic(int thread, std::uint32_t offset, std::uint32_t bytes,
                             const void* code);

  // All that one of `threads` has done is ordered before all that one of them will do: bar.sync,
  // __syncwarp, a cluster barrier.
  void barrier(std::span<const int> threads);
  // What a thread did until its release is ordered before what another does after its acquire of
  // the same object, fed later. A barrier with phases (mbarrier, bar.arrive) takes an object per
  // parity: else an early arrival for the next phase would hide a race of this one.
  void release(int thread, std::uint64_t sync_id);
  void acquire(int thread, std::uint64_t sync_id);

  // What a copy engine or a tensor core does from now on for `thread`: after all that the thread
  // did until now, and until its end a race with every conflicting access, also of `thread`.
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
  // It is complete and `thread` knows: wait_group. The id may be given to a later operation.
  void async_end(AsyncId id, int thread);
  // It is complete, and whoever acquires the object from now on knows: complete_tx,
  // cp.async.mbarrier.arrive. A wait_group of a whole warp is one, and an acquire by every lane.
  void async_end_on(AsyncId id, std::uint64_t sync_id);

  // fence.proxy.async: what is ordered before it is visible to async-proxy operations that are
  // ordered after it. It may stand anywhere on the way between the two.
  void fence_proxy(int thread);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// How offsets and threads of a checker are called in text.
struct RaceNames {
  std::uint32_t dynamic_begin = 0;  // offset of dynamic shared memory in a window
  std::uint32_t window_bytes = 0;   // of one CTA of a cluster; 0: there is only one
  int num_threads = 0;              // of one CTA of a cluster
};

// "no barrier is between the read of 16 bytes at shared memory offset 288 by thread 5 (ldmatrix at
// templates/splitkv.cuh:290 (add_scores)) and the write of 4 bytes at shared memory offset 288 by
// thread 37 (st)". Symbolizes the earlier side; the place of the later one is the fault's.
std::string to_text(const Race& race, const RaceNames& names = {});

// Without kernel, block and thread.
Fault race_fault(const Race& race, const RaceNames& names = {});

}  // namespace attune::host
