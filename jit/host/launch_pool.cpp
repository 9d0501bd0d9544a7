#include "jit/host/launch_pool.h"

#include <memory>
#include <utility>

#include "jit/host/checks.h"

namespace attune::host {

LaunchPool::LaunchPool(int num_workers, const MemoryMap* memory) {
  for (int i = 0; i < num_workers; ++i) workers_.emplace_back([this, memory] { work(memory); });
}

LaunchPool::~LaunchPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  begin_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

std::optional<Fault> LaunchPool::run(const Launch& launch) {
  const std::lock_guard one_at_a_time(launch_mutex_);
  std::unique_lock lock(mutex_);
  launch_ = &launch;
  fault_.reset();
  next_ = 0;
  count_ = std::uint64_t{launch.grid.x} / launch.cluster.x * (launch.grid.y / launch.cluster.y) *
           (launch.grid.z / launch.cluster.z);
  begin_.notify_all();
  end_.wait(lock, [&] { return num_busy_ == 0 && (next_ >= count_ || has_failed()); });
  launch_ = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return std::exchange(fault_, std::nullopt);
}

void LaunchPool::work(const MemoryMap* memory) {
  Runner runner(memory == nullptr ? nullptr : std::make_unique<Checks>(*memory));
  std::unique_lock lock(mutex_);
  while (true) {
    begin_.wait(lock,
                [&] { return stop_ || (launch_ != nullptr && next_ < count_ && !has_failed()); });
    if (stop_) return;
    const Launch& launch = *launch_;
    const std::uint64_t cluster = next_++;
    ++num_busy_;
    lock.unlock();
    std::optional<Fault> fault;
    std::exception_ptr error;
    try {
      fault = runner.run(launch, cluster);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    --num_busy_;
    if (!has_failed()) {
      fault_ = std::move(fault);
      error_ = std::move(error);
    }
    if (num_busy_ == 0) end_.notify_all();
  }
}

}  // namespace attune::host
