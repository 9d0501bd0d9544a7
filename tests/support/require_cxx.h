// For tests that compile kernels of the host device: they skip and say so without a C++ compiler,
// or fail when ATTUNE_REQUIRE_CXX=1.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "common/error.h"
#include "jit/compiler.h"

namespace attune {

// Where the tests look for the compiler: ATTUNE_CXX, as the program does.
inline HostCompilerSearch test_host_search() {
  const char* path = std::getenv("ATTUNE_CXX");
  return {.cxx = path == nullptr ? "" : path};
}

inline bool is_cxx_required() {
  const char* required = std::getenv("ATTUNE_REQUIRE_CXX");
  return required != nullptr && std::string_view(required) == "1";
}

class HostCompilerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      compiler_ = open_compiler({.host = test_host_search()}, "host");
    } catch (const DeviceUnavailable& error) {
      if (is_cxx_required()) FAIL() << error.what();
      GTEST_SKIP() << error.what();
    }
  }
  const Compiler& compiler() const { return *compiler_; }

 private:
  std::unique_ptr<Compiler> compiler_;
};

}  // namespace attune
