// The functions of the table, by what they work on; each runs on the fiber of the thread that calls
// it.
#pragma once

#include <string>
#include <string_view>

#include "jit/host/runner.h"

namespace attune::host {

// Fill their part of the table.
void add_barrier_operations(Abi* abi);
void add_warp_operations(Abi* abi);
void add_copy_operations(Abi* abi);
void add_mbarrier_operations(Abi* abi);
void add_wgmma_operations(Abi* abi);

// The whole table.
const Abi& host_abi();

// Lets everybody at the barrier go on.
void complete_barrier(Runner& runner, Barrier* barrier);

// mbarrier: one arrival, or bytes that a copy has brought. `address` may be of another CTA of the
// cluster.
void mbarrier_arrive_on(Runner& runner, std::uint32_t address, std::uint32_t count);
void mbarrier_add_pending(Runner& runner, std::uint32_t address);
bool mbarrier_phase(Runner& runner, std::uint32_t address);
void mbarrier_complete_tx(Runner& runner, std::uint32_t address, std::uint32_t bytes);

// Names of waits that carry numbers.
inline constexpr std::string_view kWaitBarrier = "bar.sync";
inline constexpr std::string_view kWaitMbarrier = "mbarrier.try_wait";
inline constexpr std::string_view kWaitCluster = "barrier.cluster.wait";

}  // namespace attune::host
