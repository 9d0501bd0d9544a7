// attune-compile-worker: compiles what CompilePool sends over standard input and answers on
// standard output, one job after the other, until its input ends. Not meant to be started by hand.
#include <iostream>
#include <memory>

#include "common/error.h"
#include "jit/compiler.h"
#include "jit/host/host_target.h"
#include "jit/worker_channel.h"
#include "jit/worker_protocol.h"

namespace {

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
  try {
    attune::WorkerChannel channel;
    Compilers compilers;
    while (const auto message = channel.next()) {
      const attune::ReceivedJob job = attune::decode_job(*message);
      if (!channel.answer(attune::encode_outcome(compile(job, &compilers)))) return 0;
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "attune-compile-worker: " << error.what() << "\n";
    return 1;
  }
}
