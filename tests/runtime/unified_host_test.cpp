// Unified rows against separate ones on the host device, on a short sequence.
#include "tests/support/require_cxx.h"
#include "tests/support/unified_error.h"

namespace attune {
namespace {

class UnifiedHostTest : public HostCompilerTest {};

TEST_F(UnifiedHostTest, IsNoWorseThanSeparateRows) {
  Options options;
  options.device = "host";
  options.cxx_path = test_host_search().cxx;
  Engine engine(options);
  expect_unified_as_good(engine, 160, 4, 2, 64, {1, 4});
}

}  // namespace
}  // namespace attune
