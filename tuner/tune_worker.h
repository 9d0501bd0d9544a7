// What attune-tune-worker is asked to do: one problem tuned into a cache file, in a process of its
// own, so that an application that serves need not wait for it.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace attune {

struct TuneWorkerJob {
  std::string problem;
  std::string cache_path;
  std::vector<std::string> cache_bases;  // beneath it, only read
  std::size_t cache_max_bytes = 0;       // of its kernels; 0: no limit
  std::string device;                    // DeviceChoice's text
  std::string gpu;                       // the identity that the device has to have
  std::string nvrtc_path;                // empty ones are looked for, as in CompilerSearch
  std::string cxx_path;
  std::string worker_path;          // attune-compile-worker
  std::string measure_worker_path;  // attune-measure-worker
  std::string scratch;              // a folder of the job's own, for temporary files
  double budget_s = 60;
  bool refresh = false;
  std::vector<std::string> disabled_families;
  friend bool operator==(const TuneWorkerJob&, const TuneWorkerJob&) = default;
};

// The job as the program's arguments, and back. Throws InvalidArgument for anything else.
std::vector<std::string> arguments_of(const TuneWorkerJob& job);
TuneWorkerJob parse_tune_worker_arguments(std::span<const std::string> arguments);

// The exit codes of the program; the same as those of attune tune.
enum class TuneWorkerExit {
  kDone = 0,      // the cache has an exact winner
  kFailed = 1,    // no candidate is right, or something broke
  kUsage = 2,     // the arguments say nothing that can be done
  kNoDevice = 3,  // no device, another one than the job names, or no compiler
  kBudget = 4,    // the time ended first; the cache has the winner so far
  kStopped = 130,
};

struct TuneWorkerEnd {
  TuneWorkerExit exit = TuneWorkerExit::kDone;
  std::string reason;  // in words, unless done
};

// Does the job: compiles and candidates run in processes of their own. `stop` is polled. Throws
// nothing.
TuneWorkerEnd run_tune_worker(const TuneWorkerJob& job, const std::function<bool()>& stop);

}  // namespace attune
