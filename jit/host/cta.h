// The state of CTAs while they run: threads, what they wait for, warps, barriers, copies under way.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jit/host/fiber.h"
#include "jit/tensor_map.h"
#include "templates/host/abi.h"

namespace attune::host {

constexpr int kLanes = 32;
constexpr int kWarpgroupThreads = 128;
constexpr int kNumBarriers = 16;
constexpr std::uint32_t kAllLanes = 0xffffffffu;

struct Cta;

// The offset in the window that a cluster address holds.
constexpr std::uint32_t offset_of(std::uint32_t address) {
  return address & ((1u << kClusterRankShift) - 1);
}

// What a thread waits for, kept cheap; `what` names the operation and `detail` belongs to it.
struct Wait {
  std::string_view what;  // compared by its text: a literal has another address in every file
  std::uint64_t detail = 0;
  std::uint64_t more = 0;
  friend bool operator==(const Wait&, const Wait&) = default;
};

// cp.async of one thread, not landed yet.
struct ThreadCopy {
  std::uint64_t number = 0;  // counts the copies of the thread
  std::uint32_t smem = 0;    // cluster address
  const void* global = nullptr;
  std::uint32_t bytes = 0, src_bytes = 0;
  bool is_landed = false;
  bool is_ended = false;    // for the checks: an mbarrier has been told
  std::uint64_t check = 0;  // of the race checker
};
using CopyGroup = std::vector<ThreadCopy>;

// cp.async.bulk from shared to global memory, of one thread.
struct BulkStore {
  BulkCopy copy;
  std::optional<TensorMapSpec> spec;  // of a box
};
struct StoreGroup {
  std::vector<BulkStore> copies;
  std::vector<std::uint64_t> checks;
  std::size_t num_landed = 0;
};

struct Thread {
  Fiber fiber;
  Place place{};
  Cta* cta = nullptr;
  const FiberStack* stack = nullptr;
  int index = 0;  // in its CTA
  bool done = false;
  bool completes = false;  // woken to carry out what its warp has met for
  Wait wait;
  const void* code = nullptr;       // in the kernel, of the operation that it is in or was in last
  std::uint64_t cluster_phase = 0;  // of its last arrival at the cluster's barrier
  bool at_cluster = false;          // that phase is under way

  std::uint64_t num_copies = 0;
  CopyGroup open_copies;
  std::deque<CopyGroup> copy_groups;
  StoreGroup open_stores;
  std::deque<StoreGroup> store_groups;
};

// Lanes, or the threads of a warpgroup, that meet at one operation: the last one to arrive carries
// it out for all.
template <int kThreads>
struct Meeting {
  std::string_view what;
  std::uint32_t mask = 0;     // of the lanes that have to come; all threads of a warpgroup
  int num_arrived = 0;        // threads of a warpgroup
  std::uint32_t arrived = 0;  // lanes
  std::array<void*, kThreads> args{};
};

struct Warp {
  std::vector<Meeting<kLanes>> meetings;  // of disjoint sets of lanes
  std::uint32_t ended = 0;                // lanes whose threads have; nobody waits for them
};

// One wgmma of a warpgroup: the operation as each thread gave it.
struct WarpgroupProduct {
  Wgmma operation{};  // but for its registers, the same for all threads
  std::array<float*, kWarpgroupThreads> d{};
  std::array<std::array<std::uint32_t, 4>, kWarpgroupThreads> a{};
  std::vector<std::pair<Thread*, std::uint64_t>> checks;  // with the first thread of the warp
};
struct Warpgroup {
  Meeting<kWarpgroupThreads> meeting;
  std::vector<WarpgroupProduct> open_products;
  std::deque<std::vector<WarpgroupProduct>> product_groups;
};

struct Barrier {
  int num_arrived = 0;   // threads, those of bar.arrive included
  int num_expected = 0;  // 0: every thread of the CTA that has not ended
  bool parity = false;   // of its next completion
  std::vector<Thread*> waiting;
};

struct Cta {
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<Warpgroup> warpgroups;
  std::array<Barrier, kNumBarriers> barriers;
  Index3 block_idx{};
  unsigned cluster_rank = 0;
  int num_alive = 0;
  std::map<std::uint32_t, std::vector<Thread*>> waiting_at_mbarrier;  // by offset
  // The shared window while another CTA of the cluster is the one that runs.
  std::vector<unsigned char> saved_window;
};

}  // namespace attune::host
