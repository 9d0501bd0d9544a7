// Every case on the GPU, against what a GPU gave before. ATTUNE_RECORD_FIXTURES=FOLDER writes the
// outputs to FOLDER instead, one file a group.
#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/conformance/compare.h"
#include "tests/conformance/fixture.h"
#include "tests/support/require_gpu.h"

namespace attune::conformance {
namespace {

class ConformanceGpuTest : public GpuTest, public testing::WithParamInterface<Group> {};

TEST_P(ConformanceGpuTest, GivesWhatIsRecorded) {
  const Group& group = GetParam();
  const std::string& arch = device().info().arch;
  const Compile compile = [&](const Source& source) { return compiler().compile(source, arch); };
  const auto& [outputs, failures] = run_group(device(), compile, group);
  for (const auto& [name, message] : failures) ADD_FAILURE() << name << ": " << message;
  const char* const folder = std::getenv("ATTUNE_RECORD_FIXTURES");
  if (folder != nullptr) write_fixture(folder, group.name, outputs);
  const Outputs again = run_group(device(), compile, group).outputs;
  for (const auto& [name, bytes] : outputs) {
    EXPECT_TRUE(again.contains(name) && again.at(name) == bytes) << "not repeatable: " << name;
  }
  if (folder != nullptr)
    GTEST_SKIP() << "recorded " << outputs.size() << " cases of " << group.name;
  // Tensor cores of other architectures sum in other ways.
  if (arch != "sm_90a") GTEST_SKIP() << "fixtures are of sm_90a, this is " << arch;
  const Outputs expected = read_fixture(fixture_folder(), group.name);
  EXPECT_EQ(expected.size(), outputs.size());
  for (const Case& one : group.cases) {
    SCOPED_TRACE(group.name + "/" + one.name);
    ASSERT_TRUE(expected.contains(one.name));
    if (!outputs.contains(one.name)) continue;
    const Comparison result = compare(group, one, expected.at(one.name), outputs.at(one.name));
    EXPECT_EQ(result.num_mismatches, 0u) << "of " << result.num_words << "; " << result.first;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ConformanceGpuTest, testing::ValuesIn(all_groups()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace attune::conformance
