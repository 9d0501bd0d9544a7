// Tunes problems in attune-tune-worker processes while the engine serves.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "jit/host/private_folder.h"
#include "jit/worker_process.h"
#include "runtime/attune.h"
#include "tuner/tune_worker.h"

namespace attune {

struct BackgroundResult {
  std::string problem;
  std::string cache_path;                  // where the winner is; empty when there is none
  std::unique_ptr<PrivateFolder> scratch;  // set when it keeps cache_path
  std::string failure;                     // why there is no winner
};

// One worker at a time; problems queue. A thread of its own waits for the workers: it starts with
// the first problem and never touches the device. Thread-safe.
class BackgroundTuner {
 public:
  // `program` is attune-tune-worker; empty: looked for.
  explicit BackgroundTuner(std::string program);
  BackgroundTuner(const BackgroundTuner&) = delete;
  BackgroundTuner& operator=(const BackgroundTuner&) = delete;
  ~BackgroundTuner();  // ends the worker, and what it left in its folder

  // An empty cache_path means a cache file of the job's own, for a cache that cannot be written.
  void add(TuneWorkerJob job);

  std::list<BackgroundResult> take_ready();
  // What was taken and not used comes first the next time.
  void put_back(std::list<BackgroundResult> results) noexcept;
  std::vector<BackgroundResult> take_failures();
  BackgroundProgress progress() const;
  // Jobs that ended with a winner and without one.
  std::uint64_t num_tuned() const;
  std::uint64_t num_failed() const;

 private:
  void loop();
  BackgroundResult tune(TuneWorkerJob job);
  std::string failure_of(WorkerProcess& worker, double deadline_s);
  bool wait_for_end(WorkerProcess& worker, double seconds, bool until_stopped);

  const std::string program_;
  int stop_fd_ = -1;  // readable once stopping_

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  bool stopping_ = false;
  std::size_t num_running_ = 0;
  std::uint64_t num_tuned_ = 0, num_failed_ = 0;
  std::deque<TuneWorkerJob> waiting_;
  std::list<BackgroundResult> ready_;
  std::vector<BackgroundResult> failures_;
  std::thread thread_;
};

}  // namespace attune
