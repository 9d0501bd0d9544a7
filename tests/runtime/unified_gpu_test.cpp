// Unified rows against separate ones on the GPU: memory and error at the lengths that count.
#include <algorithm>

#include "tests/support/require_gpu.h"
#include "tests/support/unified_error.h"

namespace attune {
namespace {

class UnifiedGpuTest : public GpuTest, public ::testing::WithParamInterface<int> {};

TEST_P(UnifiedGpuTest, IsNoWorseThanSeparateRows) {
  Engine engine({}, open_cuda_device(0));
  expect_unified_as_good(engine, GetParam(), 16, 8, std::min(GetParam() / 2, 2048), {1, 4, 8, 16});
}

INSTANTIATE_TEST_SUITE_P(Lengths, UnifiedGpuTest, ::testing::Values(1024, 8192, 32768, 131072));

}  // namespace
}  // namespace attune
