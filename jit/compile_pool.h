// Compiles in worker processes: NVRTC serializes compiles inside one process (32 small ones take the
// same time with 1, 2 and 16 threads).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "jit/compiler.h"

namespace attune {

struct CompileJob {
  std::size_t id = 0;
  Source source;
  std::string arch;
};

struct CompileOutcome {
  std::size_t id = 0;
  std::optional<Binary> binary;  // empty on failure
  std::string error;  // first line says what failed; a crash or time-out is named as such
  std::string log;
  // The failure is this machine's (no process, no memory, no compiler), not the source's: another
  // try may do.
  bool is_of_machine = false;
};

// The next job, asked for when a worker is free for it. Empty: none now; it is asked again while other
// jobs run.
using NextJob = std::function<std::optional<CompileJob>()>;
NextJob one_by_one(std::vector<CompileJob> jobs);

struct CompilePoolOptions {
  int num_workers = 0;     // 0: as many as cores and free memory allow
  double timeout_s = 120;  // of one compile, then the worker is killed and the job fails
  std::string
      worker_path;  // the attune-compile-worker program; empty: beside this library or program
  CompilerSearch compilers;
};

// Workers for `cores` and `free_bytes`: at least 1, about 400 MB each.
int worker_count(int cores, std::size_t free_bytes);

class CompilePool {
 public:
  // Finds the worker program. Throws DeviceUnavailable when it is missing.
  explicit CompilePool(CompilePoolOptions options);
  ~CompilePool();

  // Compiles all jobs and calls `done` on the calling thread, in order of completion. `stop` is
  // polled about every 100 ms; once it returns true running workers are ended and the call returns.
  // Returns the number of jobs done. A worker that dies costs its job only; the next job gets a
  // fresh one.
  std::size_t run(std::vector<CompileJob> jobs, const std::function<void(CompileOutcome)>& done,
                  const std::function<bool()>& stop = {});
  // The same, of jobs that are chosen when they begin. Ends when nothing runs and there is no job.
  std::size_t run(const NextJob& next, const std::function<void(CompileOutcome)>& done,
                  const std::function<bool()>& stop = {});

  int num_workers() const;

 private:
  CompilePoolOptions options_;
};

}  // namespace attune
