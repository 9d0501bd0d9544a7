// Every case on the host device, against what an H200 gave; and what an H200 refuses.
#include <cstdio>

#include <gtest/gtest.h>

#include "common/error.h"
#include "jit/compiler.h"
#include "jit/host_device.h"
#include "tests/conformance/compare.h"
#include "tests/conformance/fixture.h"

namespace attune::conformance {
namespace {

struct HostRun {
  Group group;
  bool early_copies = false;
};

std::string name_of(const HostRun& run) {
  return run.group.name + (run.early_copies ? "_early" : "_late");
}
void PrintTo(const HostRun& run, std::ostream* out) { *out << name_of(run); }

std::vector<HostRun> all_runs() {
  std::vector<HostRun> runs;
  for (const bool early : {false, true}) {
    for (const Group& group : all_groups()) runs.push_back({group, early});
  }
  return runs;
}

class ConformanceHostTest : public testing::Test, public testing::WithParamInterface<HostRun> {
 protected:
  static Binary compile(const Device& device, const Source& source) {
    return open_compiler({}, "host")->compile(source, device.info().arch);
  }
};

TEST_P(ConformanceHostTest, GivesWhatAnH200Gives) {
  const auto& [group, early] = GetParam();
  const std::unique_ptr<Device> device = open_host_device({.early_copies = early});
  const auto compile = [&](const Source& source) { return this->compile(*device, source); };
  const auto& [outputs, failures] = run_group(*device, compile, group);
  const Outputs expected = read_fixture(fixture_folder(), group.name);
  std::size_t num_words = 0, num_mismatches = 0;
  for (const Case& one : group.cases) {
    SCOPED_TRACE(group.name + "/" + one.name);
    if (failures.contains(one.name)) ADD_FAILURE() << failures.at(one.name);
    if (!expected.contains(one.name)) ADD_FAILURE() << "no fixture";
    if (!expected.contains(one.name) || !outputs.contains(one.name)) continue;
    const Comparison result = compare(group, one, expected.at(one.name), outputs.at(one.name));
    EXPECT_EQ(result.num_mismatches, 0u) << "of " << result.num_words << "; " << result.first;
    num_words += result.num_words;
    num_mismatches += result.num_mismatches;
  }
  std::printf("%s: %zu cases, %zu words, %zu mismatches\n", group.name.c_str(), group.cases.size(),
              num_words, num_mismatches);
}

INSTANTIATE_TEST_SUITE_P(All, ConformanceHostTest, testing::ValuesIn(all_runs()),
                         [](const auto& instance) { return name_of(instance.param); });

TEST(ConformanceHost, RefusesTheBoxesThatAnH200Refuses) {
  const std::unique_ptr<Device> device = open_host_device();
  const auto compile = [&](const Source& source) {
    return open_compiler({}, "host")->compile(source, device->info().arch);
  };
  for (const Group& group : {refused_boxes(), refused_multicasts()}) {
    const GroupRun run = run_group(*device, compile, group);
    for (const Case& one : group.cases) {
      SCOPED_TRACE(group.name + "/" + one.name);
      ASSERT_TRUE(run.failures.contains(one.name));
      EXPECT_NE(run.failures.at(one.name).find("invalid operand"), std::string::npos)
          << run.failures.at(one.name);
    }
  }
}

}  // namespace
}  // namespace attune::conformance
