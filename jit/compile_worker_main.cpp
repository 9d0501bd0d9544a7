// attune-compile-worker: compiles what CompilePool sends over standard input and answers on
// standard output, one job after the other, until its input ends. Not meant to be started by hand.
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>

#include "common/error.h"
#include "jit/compiler.h"
#include "jit/host/host_target.h"
#include "jit/worker_protocol.h"

namespace {

// Reads until a whole message is there. Empty when the input ends.
std::optional<std::string> read_message(std::string* received) {
  while (true) {
    if (auto message = attune::take_frame(received)) return message;
    char buffer[1 << 16];
    const ssize_t got = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (got > 0) received->append(buffer, static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR)) return std::nullopt;
  }
}

bool write_all(int fd, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = write(fd, bytes.data() + done, bytes.size() - done);
    if (wrote > 0) done += static_cast<std::size_t>(wrote);
    if (wrote < 0 && errno != EINTR) return false;
  }
  return true;
}

// A compiler of each kind, opened by the first job for it, which says where it is.
struct Compilers {
  std::unique_ptr<attune::Compiler> gpu, host;
};

attune::CompileOutcome compile(const attune::ReceivedJob& received, Compilers* compilers) {
  attune::CompileOutcome outcome;
  outcome.id = received.job.id;
  try {
    const std::string& arch = received.job.arch;
    auto& compiler = attune::is_host_arch(arch) ? compilers->host : compilers->gpu;
    if (!compiler) compiler = attune::open_compiler(received.compilers, arch);
    outcome.binary = compiler->compile(received.job.source, arch);
    outcome.log = outcome.binary->log;
  } catch (const attune::CompileError& error) {
    outcome.error = error.what();
    outcome.log = error.log();
  } catch (const std::exception& error) {
    outcome.error = error.what();
    outcome.is_of_machine = true;
  }
  return outcome;
}

}  // namespace

int main() {
  signal(SIGINT, SIG_IGN);   // the program that started us decides
  signal(SIGPIPE, SIG_IGN);  // a write fails instead
  // Whatever a library prints must not get between the messages.
  const int answers = dup(STDOUT_FILENO);
  if (answers < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 1;
  Compilers compilers;
  std::string received;
  try {
    while (auto message = read_message(&received)) {
      const attune::ReceivedJob job = attune::decode_job(*message);
      if (!write_all(answers, attune::frame(attune::encode_outcome(compile(job, &compilers))))) {
        return 0;
      }
    }
  } catch (const std::exception& error) {
    write_all(STDERR_FILENO, std::string("attune-compile-worker: ") + error.what() + "\n");
    return 1;
  }
  return 0;
}
