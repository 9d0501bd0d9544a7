#include "jit/driver.h"

#include <gtest/gtest.h>

#include "jit/cuda_device.h"

namespace attune {
namespace {

TEST(Driver, WritesVersionsAsTheToolkitDoes) {
  EXPECT_EQ(cuda_version_text(13000), "13.0");
  EXPECT_EQ(cuda_version_text(12080), "12.8");
  EXPECT_EQ(cuda_version_text(12010), "12.1");
}

TEST(Driver, ExplainsWhyItIsNotUsable) {
  const DriverStatus status = query_driver();
  if (status.num_devices > 0) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_FALSE(status.problem.empty());
  EXPECT_NE(status.problem.find("; "), std::string::npos) << "says what to do: " << status.problem;
  if (!status.loaded) {
    EXPECT_NE(status.problem.find("libcuda"), std::string::npos) << status.problem;
  }
  EXPECT_TRUE(list_devices().empty());
  EXPECT_THROW(open_cuda_device(0), DeviceUnavailable);
}

}  // namespace
}  // namespace attune
