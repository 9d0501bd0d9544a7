// For tests that compile: they skip and say so without NVRTC, or fail when ATTUNE_REQUIRE_NVRTC=1.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "common/error.h"
#include "jit/compiler.h"

namespace attune {

inline bool is_required(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "1";
}

// Where the tests look for NVRTC: ATTUNE_NVRTC, as the program does.
inline NvrtcSearch test_nvrtc_search() {
  const char* path = std::getenv("ATTUNE_NVRTC");
  return {path == nullptr ? "" : path, {}};
}

class NvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      compiler_ = open_compiler({.nvrtc = test_nvrtc_search()}, "sm_90a");
    } catch (const DeviceUnavailable& error) {
      if (is_required("ATTUNE_REQUIRE_NVRTC")) FAIL() << error.what();
      GTEST_SKIP() << error.what();
    }
  }
  const Compiler& compiler() const { return *compiler_; }

 private:
  std::unique_ptr<Compiler> compiler_;
};

}  // namespace attune
