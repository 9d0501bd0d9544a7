// Barriers of the warp, of the CTA and of the cluster.
#include <fmt/format.h>

#include "jit/host/checks.h"
#include "jit/host/operations.h"

namespace attune::host {
namespace {

Barrier& barrier_of(Runner& runner, int index, int num_threads, const char* what) {
  if (index < 0 || index >= kNumBarriers) {
    runner.fail(FaultKind::kBarrier,
                fmt::format("{} {}: barriers are 0 to {}", what, index, kNumBarriers - 1));
  }
  const int size = static_cast<int>(runner.cta().threads.size());
  if (num_threads != 0 && (num_threads < 0 || num_threads % kLanes != 0 || num_threads > size)) {
    runner.fail(FaultKind::kBarrier,
                fmt::format("{} {} of {} threads in a CTA of {}: a multiple of 32 up to the CTA's",
                            what, index, num_threads, size));
  }
  Barrier& barrier = runner.cta().barriers[static_cast<std::size_t>(index)];
  if (barrier.num_arrived > 0 && barrier.num_expected != num_threads) {
    runner.fail(FaultKind::kBarrier,
                fmt::format("{} {} of {} threads, others came to it for {} threads", what, index,
                            num_threads, barrier.num_expected));
  }
  barrier.num_expected = num_threads;
  ++barrier.num_arrived;
  return barrier;
}

bool is_full(const Barrier& barrier, const Cta& cta) {
  return barrier.num_arrived >= (barrier.num_expected == 0 ? cta.num_alive : barrier.num_expected);
}

void barrier_sync(int index, int num_threads) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  Barrier& barrier = barrier_of(runner, index, num_threads, "bar.sync");
  barrier.waiting.push_back(&runner.thread());
  if (is_full(barrier, runner.cta())) {
    complete_barrier(runner, &barrier);
  } else {
    runner.wait({kWaitBarrier, static_cast<std::uint64_t>(index)});
  }
}

void barrier_arrive(int index, int num_threads) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  Barrier& barrier = barrier_of(runner, index, num_threads, "bar.arrive");
  if (runner.checks() != nullptr) runner.checks()->barrier_arrive(runner.thread(), index);
  if (is_full(barrier, runner.cta())) complete_barrier(runner, &barrier);
}

void sync_warp(std::uint32_t mask) {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  int nothing = 0;
  runner.meet_warp(mask, "__syncwarp", &nothing, [&](const auto&, std::uint32_t lanes) {
    if (runner.checks() != nullptr) runner.checks()->sync_warp(runner.thread(), lanes);
  });
}

// A thread that has not waited for its last arrival may not arrive again, so one counter does.
void cluster_arrive() {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  if (runner.checks() != nullptr)
    runner.checks()->cluster_arrive(runner.thread(), runner.cluster_phase());
  runner.arrive_at_cluster();
}

void cluster_wait() {
  Runner& runner = Runner::enter(__builtin_return_address(0));
  runner.wait_for_cluster({kWaitCluster});
  if (runner.checks() != nullptr)
    runner.checks()->cluster_wait(runner.thread(), runner.thread().cluster_phase);
}

}  // namespace

void complete_barrier(Runner& runner, Barrier* barrier) {
  const int index = static_cast<int>(barrier - runner.cta().barriers.data());
  if (runner.checks() != nullptr) {
    runner.checks()->barrier_complete(*barrier, runner.cta(), index);
  }
  for (auto thread = barrier->waiting.rbegin(); thread != barrier->waiting.rend(); ++thread) {
    if (*thread != &runner.thread()) runner.wake(*thread);
  }
  barrier->waiting.clear();
  barrier->parity = !barrier->parity;
  barrier->num_arrived = 0;
  barrier->num_expected = 0;
}

void add_barrier_operations(Abi* abi) {
  abi->barrier_sync = barrier_sync;
  abi->barrier_arrive = barrier_arrive;
  abi->sync_warp = sync_warp;
  abi->cluster_arrive = cluster_arrive;
  abi->cluster_wait = cluster_wait;
}

}  // namespace attune::host
