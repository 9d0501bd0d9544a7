// Every case on the host device, against what an H200 gave; and what an H200 refuses.
#include <cstdio>
#include <memory>

#include <gtest/gtest.h>

#include "jit/compiler.h"
#include "jit/host_device.h"
#include "tests/conformance/compare.h"
#include "tests/conformance/fixture.h"

namespace attune::conformance {
namespace {

struct HostRun {
  Group group;
  std::string mode;  // "late" or "early" copies; "checked": late, and every check is on
};

HostDeviceOptions options_of(const HostRun& run) {
  HostDeviceOptions options{.early_copies = run.mode == "early"};
  if (run.mode == "checked") options.target.checks = HostChecks::kAccesses;
  return options;
}

std::string name_of(const HostRun& run) { return run.group.name + "_" + run.mode; }
void PrintTo(const HostRun& run, std::ostream* out) { *out << name_of(run); }

std::vector<HostRun> all_runs() {
  std::vector<HostRun> runs;
  for (const char* const mode : {"late", "early", "checked"}) {
    for (const Group& group : all_groups()) runs.push_back({group, mode});
  }
  return runs;
}

GroupRun run_on(Device& device, const Group& group) {
  const std::unique_ptr<Compiler> compiler = open_compiler({}, "host");
  const auto compile = [&](const Source& source) {
    return compiler->compile(source, device.info().arch);
  };
  return run_group(device, compile, group);
}

class ConformanceHostTest : public testing::TestWithParam<HostRun> {};

TEST_P(ConformanceHostTest, GivesWhatAnH200Gives) {
  const Group& group = GetParam().group;
  const std::unique_ptr<Device> device = open_host_device(options_of(GetParam()));
  const auto& [outputs, failures] = run_on(*device, group);
  const Outputs expected = read_fixture(fixture_folder(), group.name);
  EXPECT_EQ(expected.size(), group.cases.size());
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
  std::printf("%s: %zu cases, %zu words, %zu mismatches\n", name_of(GetParam()).c_str(),
              group.cases.size(), num_words, num_mismatches);
}

INSTANTIATE_TEST_SUITE_P(All, ConformanceHostTest, testing::ValuesIn(all_runs()),
                         [](const auto& instance) { return name_of(instance.param); });

TEST(ConformanceHost, RefusesTheBoxesThatAnH200Refuses) {
  const std::unique_ptr<Device> device = open_host_device();
  for (const Group& group : {refused_boxes(), refused_multicasts()}) {
    const GroupRun run = run_on(*device, group);
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
