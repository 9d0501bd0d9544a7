// For tests that run the program with kernels on the CPU: they need the system's C++ compiler.
#pragma once

#include "tests/cli/program.h"
#include "tests/support/require_cxx.h"

namespace attune {

class HostProgramTest : public ProgramTest {
 protected:
  void SetUp() override {
    try {
      open_compiler({.host = test_host_search()}, "host");
    } catch (const DeviceUnavailable& error) {
      if (is_cxx_required()) FAIL() << error.what();
      GTEST_SKIP() << error.what();
    }
  }
};

}  // namespace attune
