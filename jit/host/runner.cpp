#include "jit/host/runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "jit/host/checks.h"
#include "jit/host/deadlock.h"
#include "jit/host/operations.h"
#include "jit/host/window.h"

namespace attune::host {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kStackBytes = 512 << 10;  // redzones and no sharing of stack slots
#else
constexpr std::size_t kStackBytes = 128 << 10;
#endif
// What shared memory holds at the start: NaN as bf16 and as float, so that a read of what was never
// written shows.
constexpr unsigned char kSmemPoison = 0xff;
// Rounds in which threads only ask and nothing happens, after which they are taken for deadlocked.
constexpr int kIdleRounds = 1000;

thread_local Runner* current_runner = nullptr;

Index3 block_of(const Launch& launch, std::uint64_t cluster_index, unsigned rank) {
  const Index3 clusters{launch.grid.x / launch.cluster.x, launch.grid.y / launch.cluster.y,
                        launch.grid.z / launch.cluster.z};
  const auto x = static_cast<unsigned>(cluster_index % clusters.x);
  const auto y = static_cast<unsigned>(cluster_index / clusters.x % clusters.y);
  const auto z = static_cast<unsigned>(cluster_index / clusters.x / clusters.y);
  return {x * launch.cluster.x + rank % launch.cluster.x,
          y * launch.cluster.y + rank / launch.cluster.x % launch.cluster.y,
          z * launch.cluster.z + rank / launch.cluster.x / launch.cluster.y};
}

}  // namespace

Runner::Runner(std::unique_ptr<Checks> checks) : checks_(std::move(checks)) {}
Runner::~Runner() = default;

Runner& Runner::current() { return *current_runner; }

Runner& Runner::enter(const void* code) {
  current_runner->running_->code = code;
  return *current_runner;
}

std::optional<Fault> Runner::run(const Launch& launch, std::uint64_t cluster_index) {
  launch_ = &launch;
  current_runner = this;
  fault_.reset();
  ready_.clear();
  polling_.clear();
  deferred_.clear();
  idle_rounds_ = 0;
  num_alive_ = 0;
  num_at_cluster_ = 0;
  waiting_at_cluster_.clear();
  num_ctas_ = launch.cluster.x * launch.cluster.y * launch.cluster.z;
  locate_window();
  const std::size_t num_threads =
      std::size_t{launch.block.x} * launch.block.y * launch.block.z * num_ctas_;
  // The lanes of a warp run the same code, so a stack that is too small shows in the first of them.
  while (stacks_.size() < num_threads)
    stacks_.emplace_back(kStackBytes, stacks_.size() % kLanes == 0);
  while (ctas_.size() < num_ctas_) ctas_.push_back(std::make_unique<Cta>());
  for (unsigned rank = 0; rank < num_ctas_; ++rank) {
    start_cta(ctas_[rank].get(), rank, block_of(launch, cluster_index, rank));
  }
  current_cta_ = ctas_.front().get();
  if (checks_ != nullptr) {
    checks_->start(launch, num_ctas_, static_cast<int>(current_cta_->threads.size()),
                   window_bytes_);
  }
  SmemWindow window(window_ + dynamic_begin_, launch.smem_bytes);
  // The dispatcher's place among the fibers: it goes on when the last thread ends.
  Thread* const first = ready_.front();
  ready_.pop_front();
  running_ = first;
  Fiber::switch_to(&main_, &first->fiber);
  current_runner = nullptr;
  return std::move(fault_);
}

void Runner::start_cta(Cta* cta, unsigned rank, const Index3& block_idx) {
  const int num_threads = static_cast<int>(launch_->block.x * launch_->block.y * launch_->block.z);
  const auto num_warps = static_cast<std::size_t>((num_threads + kLanes - 1) / kLanes);
  cta->block_idx = block_idx;
  cta->cluster_rank = rank;
  cta->num_alive = num_threads;
  num_alive_ += num_threads;
  cta->barriers = {};
  cta->waiting_at_mbarrier.clear();
  cta->warps.assign(num_warps, {});
  cta->warpgroups.assign((num_warps + 3) / 4, {});
  if (cta->threads.size() != static_cast<std::size_t>(num_threads)) {
    cta->threads = std::vector<Thread>(static_cast<std::size_t>(num_threads));
  }
  for (int i = 0; i < num_threads; ++i) start_thread(cta, i);
  cta->saved_window.assign(rank == 0 ? 0 : window_bytes_ - static_begin_, kSmemPoison);
  if (rank == 0) {
    const std::uint32_t behind = dynamic_begin_ + kMaxSmemBytes;
    std::memset(window_ + static_begin_, kSmemPoison, dynamic_begin_ - static_begin_);
    std::memset(window_ + dynamic_begin_, kSmemPoison, launch_->smem_bytes);
    std::memset(window_ + behind, kSmemPoison, window_bytes_ - behind);
  }
}

void Runner::start_thread(Cta* cta, int index) {
  Thread& thread = cta->threads[static_cast<std::size_t>(index)];
  const auto linear = static_cast<unsigned>(index);
  const Index3& block = launch_->block;
  thread.place = {
      .thread_idx = {linear % block.x, linear / block.x % block.y, linear / block.x / block.y},
      .block_idx = cta->block_idx,
      .block_dim = block,
      .grid_dim = launch_->grid,
      .cluster_dim = launch_->cluster,
      .cluster_rank = cta->cluster_rank,
      .lane = linear % kLanes,
      .warp = linear / kLanes};
  thread.cta = cta;
  thread.index = index;
  thread.done = false;
  thread.completes = false;
  thread.at_cluster = false;
  thread.code = nullptr;
  thread.wait = {};
  thread.open_copies.clear();
  thread.copy_groups.clear();
  thread.open_stores = {};
  thread.store_groups.clear();
  thread.num_copies = 0;
  const std::size_t stack = static_cast<std::size_t>(num_alive_) - cta->threads.size() + linear;
  thread.stack = &stacks_[stack];
  thread.fiber.arm(stacks_[stack], &Runner::run_thread, &thread);
  ready_.push_back(&thread);
}

void Runner::run_thread(void* argument) {
  Runner& runner = current();
  static_cast<void>(argument);
  runner.launch_->entry.call(runner.launch_->params);
  runner.finish_thread();
}

void Runner::finish_thread() {
  Thread& self = *running_;
  self.done = true;
  --num_alive_;
  --self.cta->num_alive;
  if (std::exchange(self.at_cluster, false)) --num_at_cluster_;
  Warp& warp = self.cta->warps[self.place.warp];
  warp.ended |= 1u << self.place.lane;
  for (const Meeting<kLanes>& meeting : warp.meetings) {
    if (meeting.arrived == 0 || !is_met(meeting, warp)) continue;
    const auto lane = static_cast<std::size_t>(__builtin_ctz(meeting.arrived));
    Thread& other = self.cta->threads[self.place.warp * kLanes + lane];
    other.completes = true;
    wake(&other);
  }
  // A barrier of the whole CTA waits for no thread that has ended.
  for (Barrier& barrier : self.cta->barriers) {
    if (barrier.num_arrived == 0 || barrier.num_expected != 0) continue;
    if (barrier.num_arrived >= self.cta->num_alive) complete_barrier(*this, &barrier);
  }
  if (num_at_cluster_ > 0 && num_at_cluster_ >= num_alive_) complete_cluster_barrier();
  if (num_alive_ == 0) {
    while (!deferred_.empty()) {
      const auto land = std::move(deferred_.front());
      deferred_.pop_front();
      land();
    }
    leave();
  }
  run_next();
  __builtin_unreachable();
}

void Runner::leave() {
  Fiber::switch_to(&running_->fiber, &main_);
  __builtin_unreachable();
}

void Runner::wake(Thread* thread) {
  thread->wait = {};
  ready_.push_front(thread);
  idle_rounds_ = 0;
}

void Runner::wait(const Wait& wait) {
  running_->wait = wait;
  run_next();
}

void Runner::yield(bool polled) {
  if (polled) {
    polling_.push_back(running_);
  } else {
    ready_.push_back(running_);
  }
  run_next();
}

// Goes on with another thread; comes back when the running one is its turn again.
void Runner::run_next() {
  Thread* const self = running_;
  while (ready_.empty()) {
    if (make_progress()) continue;
    fail(FaultKind::kDeadlock, deadlock_report({ctas_.data(), num_ctas_}, dynamic_begin_));
  }
  Thread* const next = ready_.front();
  ready_.pop_front();
  if (next == self) return;
  running_ = next;
  if (next->cta != current_cta_) make_current(next->cta);
  Fiber::switch_to(&self->fiber, &next->fiber);
}

void Runner::arrive_at_cluster() {
  if (running_->at_cluster) {
    fail(FaultKind::kBarrier, "a second barrier.cluster.arrive before the first is complete");
  }
  running_->cluster_phase = cluster_phase_;
  running_->at_cluster = true;
  if (++num_at_cluster_ >= num_alive_) complete_cluster_barrier();
}

void Runner::wait_for_cluster(const Wait& why) {
  if (running_->cluster_phase != cluster_phase_) return;
  waiting_at_cluster_.push_back(running_);
  wait(why);
}

void Runner::complete_cluster_barrier() {
  ++cluster_phase_;
  num_at_cluster_ = 0;
  for (unsigned rank = 0; rank < num_ctas_; ++rank) {
    for (Thread& thread : ctas_[rank]->threads) thread.at_cluster = false;
  }
  for (auto thread = waiting_at_cluster_.rbegin(); thread != waiting_at_cluster_.rend(); ++thread)
    wake(*thread);
  waiting_at_cluster_.clear();
}

// Lands a copy, or lets the threads that poll ask again.
bool Runner::make_progress() {
  if (!deferred_.empty()) {
    const auto land = std::move(deferred_.front());
    deferred_.pop_front();
    land();
    idle_rounds_ = 0;
  } else if (polling_.empty() || ++idle_rounds_ > kIdleRounds) {
    return false;
  }
  while (!polling_.empty()) {
    ready_.push_back(polling_.front());
    polling_.pop_front();
  }
  return true;
}

void Runner::defer(std::function<void()> land) {
  if (launch_->copies == CopyTiming::kEarly) {
    land();
  } else {
    deferred_.push_back(std::move(land));
  }
}

void Runner::fail(FaultKind kind, std::string&& details, const void* code) {
  Fault fault;
  fault.kind = kind;
  fault.details = std::move(details);
  fault.code = code;
  fail(std::move(fault));
}

void Runner::fail(Fault&& fault) {
  if (fault.code == nullptr && fault.kind != FaultKind::kDeadlock) fault.code = running_->code;
  fault_ = std::move(fault);
  fault_->kernel = launch_->kernel;
  fault_->block_idx = running_->place.block_idx;
  fault_->thread_idx = running_->place.thread_idx;
  leave();
}

void Runner::wait_at_mbarrier(std::uint32_t address, const Wait& why) {
  cta_of(address).waiting_at_mbarrier[offset_of(address)].push_back(running_);
  wait(why);
}

void Runner::wake_at_mbarrier(std::uint32_t address) {
  auto& all = cta_of(address).waiting_at_mbarrier;
  const auto waiting = all.find(offset_of(address));
  if (waiting == all.end()) return;
  for (auto thread = waiting->second.rbegin(); thread != waiting->second.rend(); ++thread)
    wake(*thread);
  all.erase(waiting);
}

Meeting<kLanes>& Runner::meeting_of(std::uint32_t mask, std::string_view what) {
  Thread& self = *running_;
  if ((mask >> self.place.lane & 1) == 0) {
    fail(FaultKind::kDivergence,
         fmt::format("{} with the lane mask {:#010x}, which leaves out lane {} that calls it", what,
                     mask, self.place.lane));
  }
  auto& meetings = cta().warps[self.place.warp].meetings;
  for (Meeting<kLanes>& one : meetings) {
    if (one.mask != mask) continue;
    if (one.what.data() != what.data() && one.what != what) {
      fail(FaultKind::kDivergence,
           fmt::format("lane {} of warp {} is at {}, other lanes of the mask {:#010x} are at {}",
                       self.place.lane, self.place.warp, what, mask, one.what));
    }
    return one;
  }
  meetings.push_back({what, mask, 0, 0, {}});
  return meetings.back();
}

// Wakes everybody but the running thread, in the order of the lanes.
void Runner::wake_others(const Meeting<kLanes>& meeting) {
  Cta& owner = cta();
  for (int lane = kLanes - 1; lane >= 0; --lane) {
    if ((meeting.arrived >> lane & 1) == 0) continue;
    Thread* const other =
        &owner.threads[running_->place.warp * kLanes + static_cast<std::size_t>(lane)];
    if (other != running_) wake(other);
  }
}

}  // namespace attune::host
