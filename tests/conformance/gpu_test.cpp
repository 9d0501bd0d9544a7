// Every case on the GPU, against what a GPU gave before. ATTUNE_RECORD_FIXTURES=FOLDER records the
// outputs to FOLDER instead, one file a group, see record().
#include <cstdlib>
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "tests/conformance/compare.h"
#include "tests/conformance/fixture.h"
#include "tests/support/require_gpu.h"

namespace attune::conformance {
namespace {

class ConformanceGpuTest : public GpuTest, public testing::WithParamInterface<Group> {
 protected:
  Compile compile() {
    return
        [this](const Source& source) { return compiler().compile(source, device().info().arch); };
  }
  void expect_repeatable(const Group& group, const Outputs& outputs) {
    const Outputs again = run_group(device(), compile(), group).outputs;
    for (const auto& [name, bytes] : outputs) {
      EXPECT_TRUE(again.contains(name) && again.at(name) == bytes) << "not repeatable: " << name;
    }
  }
  void record(Group group, const std::filesystem::path& folder);
};

// Adds to what FOLDER has. A refused case takes the context with it: the test fails, the case's
// name goes to FOLDER/GROUP.refused, and the next run of the program goes on behind it. So: run it
// until it succeeds, from an empty folder.
void ConformanceGpuTest::record(Group group, const std::filesystem::path& folder) {
  const auto refused_path = folder / (group.name + ".refused");
  std::set<std::string> done;
  std::ifstream refused(refused_path);
  for (std::string name; refused >> name; refused.ignore(1 << 20, '\n')) done.insert(name);
  Outputs outputs;
  if (std::filesystem::exists(folder / (group.name + ".bin"))) {
    outputs = read_fixture(folder, group.name);
  }
  for (const auto& [name, bytes] : outputs) done.insert(name);
  std::erase_if(group.cases, [&](const Case& one) { return done.contains(one.name); });
  const auto& [recorded, failures] = run_group(device(), compile(), group);
  outputs.insert(recorded.begin(), recorded.end());
  write_fixture(folder, group.name, outputs);
  for (const Case& one : group.cases) {
    if (!failures.contains(one.name)) continue;
    std::ofstream(refused_path, std::ios::app) << one.name << " " << failures.at(one.name) << "\n";
    FAIL() << one.name << ": " << failures.at(one.name) << "; " << outputs.size()
           << " cases are recorded, " << failures.size() - 1 << " remain: run it again";
  }
  expect_repeatable(group, recorded);
}

TEST_P(ConformanceGpuTest, GivesWhatIsRecorded) {
  const Group& group = GetParam();
  if (const char* const folder = std::getenv("ATTUNE_RECORD_FIXTURES")) {
    record(group, folder);
    if (!HasFatalFailure()) GTEST_SKIP() << "recorded " << group.name;
    return;
  }
  const auto& [outputs, failures] = run_group(device(), compile(), group);
  for (const auto& [name, message] : failures) ADD_FAILURE() << name << ": " << message;
  expect_repeatable(group, outputs);
  // Tensor cores of other architectures sum in other ways.
  const std::string& arch = device().info().arch;
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
