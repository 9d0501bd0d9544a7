// mbarrier objects. The 8 bytes in shared memory hold the whole state, in a layout of our own as
// PTX leaves it open.
#include <cstring>

#include <fmt/format.h>

#include "jit/host/checks.h"
#include "jit/host/operations.h"

namespace attune::host {
namespace {

constexpr std::uint32_t kMbarrierBytes = 8;
constexpr std::uint32_t kMaxCount = (1u << 20) - 1;
constexpr std::int64_t kMaxTx = (1 << 20) - 1;

struct Mbarrier {
  bool is_valid = false;
  bool phase = false;          // parity of the phase that is under way
  std::uint32_t expected = 0;  // arrivals of a phase
  std::uint32_t pending = 0;   // arrivals that this phase still waits for
  std::int64_t tx = 0;         // bytes that it still waits for
};

Mbarrier unpack(std::uint64_t bits) {
  Mbarrier barrier;
  barrier.expected = static_cast<std::uint32_t>(bits & kMaxCount);
  barrier.pending = static_cast<std::uint32_t>(bits >> 20 & kMaxCount);
  barrier.tx = static_cast<std::int64_t>(bits >> 40 & 0x3fffff) - (1 << 21);
  barrier.phase = (bits >> 62 & 1) != 0;
  barrier.is_valid = bits >> 63 == 0 && barrier.expected != 0;
  return barrier;
}

std::uint64_t pack(const Mbarrier& barrier) {
  return std::uint64_t{barrier.expected} | std::uint64_t{barrier.pending} << 20 |
         static_cast<std::uint64_t>(barrier.tx + (1 << 21)) << 40 |
         std::uint64_t{barrier.phase} << 62;
}

unsigned char* bytes_of(Runner& runner, std::uint32_t address, const char* what) {
  if (address % kMbarrierBytes != 0) {
    runner.fail(FaultKind::kMisaligned,
                fmt::format("{} on shared memory offset {}, not a multiple of 8", what,
                            runner.dynamic_offset(address)));
  }
  return runner.shared(address, kMbarrierBytes, what);
}

Mbarrier load(Runner& runner, std::uint32_t address, const char* what) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes_of(runner, address, what), sizeof(bits));
  const Mbarrier barrier = unpack(bits);
  if (!barrier.is_valid) {
    runner.fail(FaultKind::kBarrier, fmt::format("{} on shared memory offset {}, which holds no "
                                                 "mbarrier: not initialized, or overwritten",
                                                 what, runner.dynamic_offset(address)));
  }
  return barrier;
}

void store(Runner& runner, std::uint32_t address, const Mbarrier& barrier) {
  const std::uint64_t bits = pack(barrier);
  std::memcpy(bytes_of(runner, address, "mbarrier"), &bits, sizeof(bits));
}

// Ends the phase when nothing is missing from it; stores the barrier.
void settle(Runner& runner, std::uint32_t address, Mbarrier barrier) {
  if (barrier.pending == 0 && barrier.tx == 0) {
    barrier.phase = !barrier.phase;
    barrier.pending = barrier.expected;
    runner.wake_at_mbarrier(address);
  }
  store(runner, address, barrier);
}

void change_tx(Runner& runner, std::uint32_t address, std::int64_t bytes, const char* what) {
  Mbarrier barrier = load(runner, address, what);
  barrier.tx += bytes;
  if (barrier.tx > kMaxTx || barrier.tx < -kMaxTx) {
    runner.fail(FaultKind::kBarrier,
                fmt::format("{} brings the bytes of the mbarrier at offset {} to {}", what,
                            runner.dynamic_offset(address), barrier.tx));
  }
  if (bytes > 0) {
    store(runner, address, barrier);
  } else {
    settle(runner, address, barrier);
  }
}

void init(std::uint32_t address, std::uint32_t count) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  if (count == 0 || count > kMaxCount) {
    runner.fail(FaultKind::kBarrier, fmt::format("mbarrier.init with the count {}", count));
  }
  store(runner, address, {true, false, count, count, 0});
  if (runner.checks() != nullptr) {
    runner.checks()->shared_access(runner.thread(), address, kMbarrierBytes, true,
                                   Operation::kStore);
  }
}

void invalidate(std::uint32_t address) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  load(runner, address, "mbarrier.inval");
  std::memset(bytes_of(runner, address, "mbarrier.inval"), 0xff, kMbarrierBytes);
}

void arrive(std::uint32_t address, std::uint32_t count) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  if (runner.checks() != nullptr) {
    const Mbarrier barrier = load(runner, address, "mbarrier.arrive");
    runner.checks()->mbarrier_release(runner.thread(), address, barrier.phase);
  }
  mbarrier_arrive_on(runner, address, count);
}

void expect_tx(std::uint32_t address, std::uint32_t bytes) {
  change_tx(Runner::enter(__builtin_return_address(0)), address, bytes, "mbarrier.expect_tx");
}

bool is_complete(Runner& runner, std::uint32_t address, std::uint32_t parity, const char* what) {
  const Mbarrier barrier = load(runner, address, what);
  if (barrier.phase == ((parity & 1) != 0)) return false;
  if (runner.checks() != nullptr)
    runner.checks()->mbarrier_acquire(runner.thread(), address, (parity & 1) != 0);
  return true;
}

int test_wait(std::uint32_t address, std::uint32_t parity) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  if (is_complete(runner, address, parity, "mbarrier.test_wait")) return 1;
  runner.yield(true);
  return is_complete(runner, address, parity, "mbarrier.test_wait") ? 1 : 0;
}

int try_wait(std::uint32_t address, std::uint32_t parity) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  while (!is_complete(runner, address, parity, "mbarrier.try_wait")) {
    runner.wait_at_mbarrier(address, {kWaitMbarrier, address, parity & 1});
  }
  return 1;
}

}  // namespace

void mbarrier_arrive_on(Runner& runner, std::uint32_t address, std::uint32_t count) {
  Mbarrier barrier = load(runner, address, "mbarrier.arrive");
  if (count == 0 || count > barrier.pending) {
    runner.fail(
        FaultKind::kBarrier,
        fmt::format("{} arrivals at the mbarrier at offset {}, whose phase waits for {} more",
                    count, runner.dynamic_offset(address), barrier.pending));
  }
  barrier.pending -= count;
  settle(runner, address, barrier);
}

void mbarrier_complete_tx(Runner& runner, std::uint32_t address, std::uint32_t bytes) {
  change_tx(runner, address, -std::int64_t{bytes}, "complete_tx");
}

void mbarrier_add_pending(Runner& runner, std::uint32_t address) {
  Mbarrier barrier = load(runner, address, "cp.async.mbarrier.arrive");
  ++barrier.pending;
  store(runner, address, barrier);
}

bool mbarrier_phase(Runner& runner, std::uint32_t address) {
  return load(runner, address, "mbarrier").phase;
}

void add_mbarrier_operations(Abi* abi) {
  abi->mbarrier_init = init;
  abi->mbarrier_invalidate = invalidate;
  abi->mbarrier_arrive = arrive;
  abi->mbarrier_expect_tx = expect_tx;
  abi->mbarrier_test_wait = test_wait;
  abi->mbarrier_try_wait = try_wait;
}

}  // namespace attune::host
