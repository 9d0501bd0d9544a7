#include "jit/compile_pool.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "jit/host/host_target.h"
#include "jit/host/private_folder.h"
#include "jit/machine_limits.h"
#include "jit/worker_process.h"
#include "jit/worker_protocol.h"

namespace attune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kWorkerBytes = std::size_t{400} << 20;
constexpr auto kPollInterval = std::chrono::milliseconds(100);

// A worker and what it is doing. Without a process it is a free place for one.
struct Slot {
  std::unique_ptr<WorkerProcess> process;
  std::optional<CompileJob> job;
  Clock::time_point deadline;
};

std::string name_of(const CompileJob& job) {
  return fmt::format("source={} arch={}",
                     job.source.split_symbol.empty() ? "probe" : job.source.split_symbol, job.arch);
}

// One call of CompilePool::run. Its destructor ends every worker.
class Run {
 public:
  Run(const CompilePoolOptions& options, const NextJob& next,
      const std::function<void(CompileOutcome)>& done)
      : options_(options),
        next_(next),
        done_(done),
        compilers_(options.compilers),
        slots_(static_cast<std::size_t>(options.num_workers)) {}

  std::size_t loop(const std::function<bool()>& stop) {
    while (!(stop && stop())) {
      for (Slot& slot : slots_) {
        if (!slot.job && !assign(&slot)) break;
      }
      const auto runs = [](const Slot& slot) { return slot.job.has_value(); };
      if (std::none_of(slots_.begin(), slots_.end(), runs)) break;
      wait();
      for (Slot& slot : slots_) serve(&slot);
    }
    return num_done_;
  }

 private:
  // Gives an idle slot the next job, and a process if it has none. False when there is no job.
  bool assign(Slot* slot) {
    while ((slot->job = next_())) {
      if (slot->process != nullptr || start(slot)) break;
    }
    if (!slot->job) return false;
    if (is_host_arch(slot->job->arch)) use_scratch();
    slot->deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(options_.timeout_s));
    slot->process->send(encode_job(*slot->job, compilers_));
    return true;
  }

  // False when that fails; then the job has.
  bool start(Slot* slot) {
    try {
      slot->process = std::make_unique<WorkerProcess>(options_.worker_path);
      return true;
    } catch (const Error& error) {
      fail(slot, error.what(), true);
      return false;
    }
  }

  void use_scratch() {
    if (!compilers_.host.scratch_folder.empty()) return;
    scratch_.emplace();
    compilers_.host.scratch_folder = scratch_->path().string();
  }

  // Sleeps until a worker has something to say, a deadline or the poll interval.
  void wait() {
    std::vector<pollfd> sockets;
    auto wake = Clock::now() + kPollInterval;
    for (const Slot& slot : slots_) {
      if (slot.process == nullptr) continue;
      const short events = slot.process->has_unsent() ? POLLIN | POLLOUT : POLLIN;
      sockets.push_back({slot.process->socket(), events, 0});
      if (slot.job) wake = std::min(wake, slot.deadline);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake - Clock::now());
    poll(sockets.data(), sockets.size(), static_cast<int>(std::max<long>(0, left.count())));
  }

  void serve(Slot* slot) {
    if (slot->process == nullptr) return;
    slot->process->send_more();
    const bool alive = slot->process->receive();
    std::optional<CompileOutcome> outcome;
    try {
      outcome = next_outcome(slot);
    } catch (const Error& error) {  // it does not speak our protocol
      slot->process.reset();
      fail(slot, error.what(), true);
      return;
    }
    if (outcome) {
      slot->job.reset();
      report(std::move(*outcome));
    }
    if (!alive) {
      const ProcessEnd end = slot->process->end();
      slot->process.reset();
      fail(slot, fmt::format("the compile worker died: {}", end.text), !end.is_crash);
    } else if (slot->job && Clock::now() >= slot->deadline) {
      slot->process.reset();
      fail(slot, fmt::format("the compile timed out: timeout_s={}", options_.timeout_s), false);
    }
  }

  // The answer to the slot's job, once it is there. Throws Error for anything else.
  std::optional<CompileOutcome> next_outcome(Slot* slot) {
    const auto message = slot->process->next_message();
    if (!message) return std::nullopt;
    CompileOutcome outcome = decode_outcome(*message);
    if (!slot->job || outcome.id != slot->job->id) {
      throw Error("a compile worker answered for another job",
                  fmt::format("answer={}", outcome.id));
    }
    return outcome;
  }

  // Ends the job of a slot, if it has one, without a binary.
  void fail(Slot* slot, const std::string& reason, bool is_of_machine) {
    if (!slot->job) return;
    const CompileJob job = *std::exchange(slot->job, std::nullopt);
    report({job.id, std::nullopt, fmt::format("{} {}", reason, name_of(job)), {}, is_of_machine});
  }

  void report(CompileOutcome outcome) {
    ++num_done_;
    done_(std::move(outcome));
  }

  const CompilePoolOptions& options_;
  const NextJob& next_;
  const std::function<void(CompileOutcome)>& done_;
  // A worker that is killed leaves files; they go when the workers have ended, so it stands first.
  std::optional<PrivateFolder> scratch_;
  CompilerSearch compilers_;
  std::vector<Slot> slots_;
  std::size_t num_done_ = 0;
};

}  // namespace

NextJob one_by_one(std::vector<CompileJob> jobs) {
  return [jobs = std::move(jobs), next = std::size_t{0}]() mutable -> std::optional<CompileJob> {
    if (next == jobs.size()) return std::nullopt;
    return std::move(jobs[next++]);
  };
}

int worker_count(int cores, std::size_t free_bytes) {
  const std::size_t by_memory = free_bytes / kWorkerBytes;
  const auto by_cores = static_cast<std::size_t>(std::max(1, cores));
  return static_cast<int>(std::max<std::size_t>(1, std::min(by_cores, by_memory)));
}

CompilePool::CompilePool(CompilePoolOptions options) : options_(std::move(options)) {
  if (options_.worker_path.empty()) options_.worker_path = find_worker_program().string();
  require_program(options_.worker_path, "attune-compile-worker");
  if (options_.num_workers <= 0) {
    const MachineLimits limits = machine_limits();
    options_.num_workers = worker_count(limits.cores, limits.free_bytes);
  }
}

CompilePool::~CompilePool() = default;

int CompilePool::num_workers() const { return options_.num_workers; }

std::size_t CompilePool::run(std::vector<CompileJob> jobs,
                             const std::function<void(CompileOutcome)>& done,
                             const std::function<bool()>& stop) {
  return run(one_by_one(std::move(jobs)), done, stop);
}

std::size_t CompilePool::run(const NextJob& next, const std::function<void(CompileOutcome)>& done,
                             const std::function<bool()>& stop) {
  return Run(options_, next, done).loop(stop);
}

}  // namespace attune
