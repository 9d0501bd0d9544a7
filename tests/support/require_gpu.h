// For tests that run kernels: they skip and say so without a GPU, or fail when
// ATTUNE_REQUIRE_GPU=1.
#pragma once

#include <memory>

#include <gtest/gtest.h>

#include "jit/cuda_device.h"
#include "tests/support/require_nvrtc.h"

namespace attune {

// Device 0, and a compiler for it.
class GpuTest : public NvrtcTest {
 protected:
  void SetUp() override {
    const DriverStatus status = query_driver();
    if (!status.problem.empty()) {
      if (is_required("ATTUNE_REQUIRE_GPU")) FAIL() << status.problem;
      GTEST_SKIP() << status.problem;
    }
    NvrtcTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) device_ = open_cuda_device(0);
  }
  Device& device() const { return *device_; }

 private:
  std::unique_ptr<Device> device_;
};

}  // namespace attune
