// Runs CTAs of a kernel on one OS thread, their threads as fibers. A fiber that waits lets the next
// one run; when all wait, copies under way land, and when none is left the run ends with a report
// of who waits for what.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "jit/host/cta.h"
#include "jit/host/fault.h"
#include "jit/host/host_module.h"

namespace attune::host {

class Checks;

// When copies land that a kernel started and has not waited for.
enum class CopyTiming {
  // At the last moment that the ordering rules allow: a missing wait shows as a wrong result.
  kLate,
  // At once: a slot that is still read shows as a wrong result.
  kEarly,
};

// One launch, shared by the OS threads that run its CTAs.
struct Launch {
  const HostModule* module = nullptr;
  std::string kernel;
  EntryPoint entry;
  const void* params = nullptr;
  Index3 grid{1, 1, 1}, block{1, 1, 1}, cluster{1, 1, 1};
  std::uint32_t smem_bytes = 0;
  CopyTiming copies = CopyTiming::kLate;
};

class Runner {
 public:
  explicit Runner(std::unique_ptr<Checks> checks);  // nullptr: nothing is checked
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Runs the CTAs of one cluster to their end. Returns what went wrong.
  std::optional<Fault> run(const Launch& launch, std::uint64_t cluster_index);

  // The runner of the calling OS thread, for the functions of the table.
  static Runner& current();
  // The same, at the start of a function of the table: `code` is its return address.
  static Runner& enter(const void* code);

  Thread& thread() { return *running_; }
  Cta& cta() { return *running_->cta; }
  const Launch& launch() const { return *launch_; }
  Checks* checks() { return checks_.get(); }

  // Suspends the running thread until `wake`.
  void wait(const Wait& wait);
  // Lets others run first. `polled`: the thread asked for something that has not happened yet, so
  // it goes on only when nothing else can.
  void yield(bool polled);
  void wake(Thread* thread);
  // Ends the launch; the running thread goes no further.
  // The text is taken out of the caller's hands: nothing of its frame is destroyed.
  [[noreturn]] void fail(FaultKind kind, std::string&& details, const void* code = nullptr);
  [[noreturn]] void fail(Fault&& fault);

  // The lanes of `mask` whose threads have not ended meet; one of them calls complete(args of each
  // lane, those lanes).
  template <typename Args, typename Complete>
  void meet_warp(std::uint32_t mask, std::string_view what, Args* args, const Complete& complete);
  // The 128 threads of the warpgroup meet.
  template <typename Complete>
  void meet_warpgroup(std::string_view what, void* args, const Complete& complete);

  // barrier.cluster: of all threads of the cluster that have not ended.
  void arrive_at_cluster();
  void wait_for_cluster(const Wait& wait);
  std::uint64_t cluster_phase() const { return cluster_phase_; }

  // Carried out when no thread can go on otherwise, oldest first; at once with CopyTiming::kEarly.
  void defer(std::function<void()> land);

  // Shared memory of the running thread's CTA, or of another one of the cluster when the address
  // says so. Fails when the bytes are not all inside of it.
  unsigned char* shared(std::uint32_t address, std::uint32_t bytes, const char* what,
                        const void* code = nullptr);
  // The cluster address of a pointer into shared memory; empty for other memory.
  std::optional<std::uint32_t> find_shared(const void* pointer) const;
  // The CTA that a cluster address is in, and the offset in its window.
  Cta& cta_of(std::uint32_t address);
  Cta& cta_of_rank(unsigned rank);
  unsigned num_ctas() const { return num_ctas_; }

  // The address with the rank of its CTA in it; `rank`: of that CTA instead.
  std::uint32_t cluster_address(std::uint32_t address);
  static std::uint32_t cluster_address(std::uint32_t address, unsigned rank);
  // Where offset 0 of that CTA's window is, or would be.
  unsigned char* window_of(std::uint32_t address);

  std::uint32_t dynamic_begin() const { return dynamic_begin_; }
  // The offset in dynamic shared memory, for messages.
  std::int64_t dynamic_offset(std::uint32_t address) const {
    return std::int64_t{offset_of(address)} - dynamic_begin_;
  }

  void wait_at_mbarrier(std::uint32_t address, const Wait& wait);
  void wake_at_mbarrier(std::uint32_t address);

 private:
  void start_cta(Cta* cta, unsigned rank, const Index3& first_block);
  void start_thread(Cta* cta, int index);
  ATTUNE_LEFT_BY_SWITCH static void run_thread(void* thread);
  [[noreturn]] ATTUNE_LEFT_BY_SWITCH void finish_thread();
  ATTUNE_LEFT_BY_SWITCH void run_next();
  bool make_progress();
  void make_current(Cta* cta);
  void locate_window();
  static bool is_met(const Meeting<kLanes>& meeting, const Warp& warp) {
    return meeting.arrived == (meeting.mask & ~warp.ended);
  }
  void wake_others(const Meeting<kLanes>& meeting);
  void complete_cluster_barrier();
  Meeting<kLanes>& meeting_of(std::uint32_t mask, std::string_view what);
  [[noreturn]] ATTUNE_LEFT_BY_SWITCH void leave();

  std::unique_ptr<Checks> checks_;
  const Launch* launch_ = nullptr;
  Fiber main_;
  Thread* running_ = nullptr;
  Cta* current_cta_ = nullptr;  // whose shared memory the window holds
  std::vector<std::unique_ptr<Cta>> ctas_;
  unsigned num_ctas_ = 0;
  int num_alive_ = 0;
  std::vector<FiberStack> stacks_;
  std::deque<Thread*> ready_;
  std::deque<Thread*> polling_;
  int idle_rounds_ = 0;
  int num_at_cluster_ = 0;
  std::uint64_t cluster_phase_ = 0;
  std::vector<Thread*> waiting_at_cluster_;
  std::deque<std::function<void()>> deferred_;
  std::optional<Fault> fault_;

  // The window: static and dynamic shared memory of the module on this OS thread.
  unsigned char* window_ = nullptr;
  std::uint32_t window_bytes_ = 0;
  std::uint32_t static_begin_ = 0, dynamic_begin_ = 0;
};

template <typename Args, typename Complete>
void Runner::meet_warp(std::uint32_t mask, std::string_view what, Args* args,
                       const Complete& complete) {
  Thread& self = thread();
  Warp& warp = cta().warps[self.place.warp];
  Meeting<kLanes>& arriving = meeting_of(mask, what);
  arriving.args[self.place.lane] = args;
  arriving.arrived |= 1u << self.place.lane;
  if (!is_met(arriving, warp)) {
    wait({what, mask});
    if (!self.completes) return;
    self.completes = false;
  }
  Meeting<kLanes>& meeting = meeting_of(mask, what);
  std::array<Args*, kLanes> all{};
  for (int lane = 0; lane < kLanes; ++lane) all[lane] = static_cast<Args*>(meeting.args[lane]);
  const std::uint32_t present = meeting.arrived;
  wake_others(meeting);
  warp.meetings.erase(warp.meetings.begin() + (&meeting - warp.meetings.data()));
  complete(all, present);
}

template <typename Complete>
void Runner::meet_warpgroup(std::string_view what, void* args, const Complete& complete) {
  Thread& self = thread();
  const int group_idx = self.index / kWarpgroupThreads;
  const int place = self.index % kWarpgroupThreads;
  Warpgroup& group = cta().warpgroups[static_cast<std::size_t>(group_idx)];
  Meeting<kWarpgroupThreads>& meeting = group.meeting;
  if ((group_idx + 1) * kWarpgroupThreads > static_cast<int>(cta().threads.size())) {
    fail(FaultKind::kDivergence, fmt::format("{} in a warpgroup of fewer than 128 threads", what));
  }
  if (meeting.num_arrived > 0 && meeting.what != what) {
    fail(FaultKind::kDivergence,
         fmt::format("other threads of the warpgroup are at {}, this one is at {}", meeting.what,
                     what));
  }
  meeting.what = what;
  meeting.args[static_cast<std::size_t>(place)] = args;
  if (++meeting.num_arrived < kWarpgroupThreads) {
    wait({what, static_cast<std::uint64_t>(group_idx)});
    return;
  }
  meeting.num_arrived = 0;
  const auto all = meeting.args;
  for (int i = kWarpgroupThreads - 1; i >= 0; --i) {
    Thread* other = &cta().threads[static_cast<std::size_t>(group_idx * kWarpgroupThreads + i)];
    if (other != &self) wake(other);
  }
  complete(group, all);
}

}  // namespace attune::host
