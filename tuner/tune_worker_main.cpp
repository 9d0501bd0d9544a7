// attune-tune-worker: tunes one problem into a cache file for an engine that goes on serving. Its
// standard input says that the engine lives: when it ends, so does this program. The reason of a
// failure goes to standard output. Not meant to be started by hand.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "common/error.h"
#include "jit/worker_protocol.h"
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

// Sets `stop` at the end of the input; a tune polls it between candidates.
void watch_input(const std::string& scratch) {
  char byte;
  while (true) {
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got == 0 || (got < 0 && errno != EINTR)) break;
  }
  stop = true;
  std::this_thread::sleep_for(kMostAfterStop);
  remove_scratch(scratch);
  _exit(static_cast<int>(attune::TuneWorkerExit::kStopped));
}

void write_all(int fd, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = write(fd, bytes.data() + done, bytes.size() - done);
    if (wrote > 0) done += static_cast<std::size_t>(wrote);
    if (wrote < 0 && errno != EINTR) return;
  }
}

attune::TuneWorkerEnd run(const std::vector<std::string>& arguments) {
  attune::TuneWorkerJob job;
  try {
    job = attune::parse_tune_worker_arguments(arguments);
  } catch (const attune::Error& error) {
    return {attune::TuneWorkerExit::kUsage, error.what()};
  }
  if (!job.scratch.empty()) setenv("TMPDIR", job.scratch.c_str(), 1);
  std::thread([scratch = job.scratch] { watch_input(scratch); }).detach();
  attune::TuneWorkerEnd end = attune::run_tune_worker(job, [] { return stop.load(); });
  if (stop) remove_scratch(job.scratch);
  return end;
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGINT, SIG_IGN);   // the engine decides
  signal(SIGPIPE, SIG_IGN);  // a write fails instead
  setpriority(PRIO_PROCESS, 0, kNice);
  // Whatever a library prints must not get into the answer, and no process of ours may hold it.
  const int answer = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (answer < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 1;
  const attune::TuneWorkerEnd end = run({argv + 1, argv + argc});
  if (!end.reason.empty()) write_all(answer, attune::frame(end.reason));
  // Not by return: the thread that watches the input still runs.
  _exit(static_cast<int>(end.exit));
}
