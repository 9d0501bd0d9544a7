#include "runtime/background_tuner.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"

namespace attune {
namespace {

using Clock = std::chrono::steady_clock;

// A tune looks at its budget between candidates and still compares the best ones when it is over.
constexpr double kDeadlineFactor = 2;
constexpr double kDeadlineSlack_s = 2;
// What a worker gets to end by itself and clean up, before it is killed.
constexpr double kGrace_s = 1;

bool has_winner(const ProcessEnd& end) {
  return end.exit_status == static_cast<int>(TuneWorkerExit::kDone) ||
         end.exit_status == static_cast<int>(TuneWorkerExit::kBudget);
}

}  // namespace

BackgroundTuner::BackgroundTuner(std::string program) : program_(std::move(program)) {}

BackgroundTuner::~BackgroundTuner() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (stop_fd_ >= 0) eventfd_write(stop_fd_, 1);
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (stop_fd_ >= 0) close(stop_fd_);
}

void BackgroundTuner::add(TuneWorkerJob job) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) {
    stop_fd_ = eventfd(0, EFD_CLOEXEC);
    thread_ = std::thread([this] { loop(); });
  }
  waiting_.push_back(std::move(job));
  wake_.notify_all();
}

std::list<BackgroundResult> BackgroundTuner::take_ready() {
  const std::lock_guard lock(mutex_);
  return std::exchange(ready_, {});
}

void BackgroundTuner::put_back(std::list<BackgroundResult> results) noexcept {
  const std::lock_guard lock(mutex_);
  ready_.splice(ready_.begin(), results);
}

std::vector<BackgroundResult> BackgroundTuner::take_failures() {
  const std::lock_guard lock(mutex_);
  return std::exchange(failures_, {});
}

BackgroundProgress BackgroundTuner::progress() const {
  const std::lock_guard lock(mutex_);
  return {waiting_.size(), num_running_, ready_.size()};
}

std::uint64_t BackgroundTuner::num_tuned() const {
  const std::lock_guard lock(mutex_);
  return num_tuned_;
}

std::uint64_t BackgroundTuner::num_failed() const {
  const std::lock_guard lock(mutex_);
  return num_failed_;
}

void BackgroundTuner::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    TuneWorkerJob job = std::move(waiting_.front());
    waiting_.pop_front();
    num_running_ = 1;
    lock.unlock();
    BackgroundResult result = tune(std::move(job));
    lock.lock();
    num_running_ = 0;
    ++(result.failure.empty() ? num_tuned_ : num_failed_);
    if (result.failure.empty()) {
      ready_.push_back(std::move(result));
    } else {
      failures_.push_back(std::move(result));
    }
  }
}

// Throws nothing: every reason is a failure of the job.
BackgroundResult BackgroundTuner::tune(TuneWorkerJob job) {
  BackgroundResult result;
  result.problem = job.problem;
  try {
    auto scratch = std::make_unique<PrivateFolder>();
    job.scratch = scratch->path().string();
    const bool is_private = job.cache_path.empty();
    if (is_private) job.cache_path = (scratch->path() / "tune.db").string();
    {
      const std::string program =
          program_.empty() ? find_program("attune-tune-worker", "ATTUNE_TUNE_WORKER").string()
                           : program_;
      WorkerProcess worker(program, arguments_of(job));
      result.failure = failure_of(worker, kDeadlineFactor * job.budget_s + kDeadlineSlack_s);
    }
    if (!result.failure.empty()) return result;
    result.cache_path = job.cache_path;
    if (is_private) result.scratch = std::move(scratch);
  } catch (const std::exception& error) {
    result.failure = error.what();
  }
  return result;
}

// Waits for a worker and says why it found no winner; empty when it did.
std::string BackgroundTuner::failure_of(WorkerProcess& worker, double deadline_s) {
  const bool in_time = wait_for_end(worker, deadline_s, true);
  if (!in_time) {
    worker.close_input();
    wait_for_end(worker, kGrace_s, false);
  }
  const auto reason = worker.next_message();
  const ProcessEnd end = worker.end();
  if (!in_time) return fmt::format("the tune worker was ended: deadline_s={:.0f}", deadline_s);
  if (has_winner(end)) return {};
  return reason ? *reason : fmt::format("the tune worker died: {}", end.text);
}

// False when the time is over, or the tuner is stopping and `until_stopped`.
bool BackgroundTuner::wait_for_end(WorkerProcess& worker, double seconds, bool until_stopped) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(seconds));
  while (worker.receive()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd fds[] = {{worker.socket(), POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    constexpr std::int64_t kLongest_ms = 1 << 30;
    poll(fds, until_stopped ? 2 : 1, static_cast<int>(std::min<std::int64_t>(left, kLongest_ms)));
    if (until_stopped && fds[1].revents != 0) return false;
  }
  return true;
}

}  // namespace attune
