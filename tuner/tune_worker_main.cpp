// attune-tune-worker: tunes one problem into a cache file for an engine that goes on serving. Its
// standard input says that the engine lives: when it ends, so does this program. The reason of a
// failure goes to standard output. Not meant to be started by hand.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "common/error.h"
#include "jit/worker_channel.h"
#include "tuner/tune_worker.h"

namespace {

// The engine's threads come first wherever both want a core.
constexpr int kNice = 10;

// An engine removes the folder itself, unless its process died.
void remove_scratch(const std::string& scratch) {
  std::error_code error;
  if (!scratch.empty()) std::filesystem::remove_all(scratch, error);
}

// What a tune may still take after the engine went away, when nobody is left to end us.
constexpr auto kMostAfterStop = std::chrono::seconds(10);

std::atomic<bool> stop = false;

// The input has ended. A tune polls `stop`, also while a candidate runs.
void end_soon(const std::string& scratch) {
  stop = true;
  std::this_thread::sleep_for(kMostAfterStop);
  remove_scratch(scratch);
  _exit(static_cast<int>(attune::TuneWorkerExit::kStopped));
}

attune::TuneWorkerEnd run(const attune::TuneWorkerJob& job) {
  if (!job.scratch.empty()) setenv("TMPDIR", job.scratch.c_str(), 1);
  attune::TuneWorkerEnd end = attune::run_tune_worker(job, [] { return stop.load(); });
  if (stop) remove_scratch(job.scratch);
  return end;
}

}  // namespace

int main(int argc, char** argv) {
  setpriority(PRIO_PROCESS, 0, kNice);
  attune::TuneWorkerJob job;
  attune::TuneWorkerEnd end;
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    job = attune::parse_tune_worker_arguments(arguments);
  } catch (const attune::Error& error) {
    end = {attune::TuneWorkerExit::kUsage, error.what()};
  }
  const attune::WorkerChannel channel([scratch = job.scratch] { end_soon(scratch); });
  if (end.reason.empty()) end = run(job);
  if (!end.reason.empty()) channel.answer(end.reason);
  // Not by return: the thread that reads the input still runs.
  _exit(static_cast<int>(end.exit));
}
