// The worker's end of what WorkerProcess holds: messages from standard input, answers to standard
// output, and the end of the process with that of its input.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace attune {

// Ends this process and what it started, now: nobody waits for its answers any more.
[[noreturn]] void end_process_group();

// One in a process, for all its life. SIGINT is ignored, since the program that started us decides,
// and whatever a library prints goes to standard error. A crash leaves no core file.
class WorkerChannel {
 public:
  // A thread of its own reads the input. It calls `at_end` when the input ends, that is when the
  // program that started us has closed it or died, while the work on a message goes on.
  explicit WorkerChannel(std::function<void()> at_end = end_process_group);
  WorkerChannel(const WorkerChannel&) = delete;
  WorkerChannel& operator=(const WorkerChannel&) = delete;

  // Waits for a message; empty at the end of the input. Throws Error for a length that none has.
  std::optional<std::string> next();
  // False when nobody reads it.
  bool answer(const std::string& body) const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the thread may outlive the channel
  int answers_ = -1;
};

}  // namespace attune
