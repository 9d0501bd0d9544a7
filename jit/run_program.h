// A program that is run to its end, without a shell.
#pragma once

#include <string>
#include <vector>

#include "jit/worker_process.h"

namespace attune {

struct ProgramRun {
  std::string problem;  // why it could not be started; the rest is empty then
  ProcessEnd end;
  std::string output;  // standard output and standard error as they came
};

// Runs `arguments`, the program first: a path, or a name that is looked for on PATH. It has an
// empty input, the root as its folder and our environment with `variables` ("TMPDIR=/x") in place
// of its own. It stays in our process group: what ends the group ends it.
ProgramRun run_program(const std::vector<std::string>& arguments,
                       const std::vector<std::string>& variables);

}  // namespace attune
