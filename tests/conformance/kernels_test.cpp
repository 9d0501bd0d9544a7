// The kernels of the suite compile for the first architecture that can have them and for the
// fullest, without a spill.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/conformance/case.h"
#include "tests/support/require_nvrtc.h"

namespace attune::conformance {
namespace {

class ConformanceKernelsTest : public NvrtcTest, public testing::WithParamInterface<Group> {};

TEST_P(ConformanceKernelsTest, CompileWithoutASpillOrANote) {
  const Group& group = GetParam();
  for (const std::string arch : {"sm_80", "sm_90a"}) {
    SCOPED_TRACE(arch);
    const Source source = group_source(group, arch);
    if (source.symbols.empty()) continue;
    const Binary binary = compiler().compile(source, arch);
    for (const std::string& symbol : source.symbols) {
      const auto same = [&](const KernelResources& kernel) { return kernel.symbol == symbol; };
      EXPECT_TRUE(std::any_of(binary.kernels.begin(), binary.kernels.end(), same)) << symbol;
    }
    for (const KernelResources& kernel : binary.kernels) {
      EXPECT_EQ(kernel.spill_store_bytes + kernel.spill_load_bytes, 0) << kernel.symbol;
      EXPECT_EQ(kernel.stack_bytes, 0) << kernel.symbol;
    }
    for (const std::string& note : binary.notes) ADD_FAILURE() << note;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ConformanceKernelsTest, testing::ValuesIn(all_groups()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace attune::conformance
