// The cases themselves: what they ask for is legal, and their inputs are the same everywhere.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "tests/conformance/case.h"
#include "tests/conformance/operands.h"

namespace attune::conformance {
namespace {

TEST(ConformanceCases, HaveDistinctNamesAndLegalLaunches) {
  for (const Group& group : all_groups()) {
    std::set<std::string> names;
    for (const Case& one : group.cases) {
      SCOPED_TRACE(group.name + "/" + one.name);
      EXPECT_TRUE(names.insert(one.name).second);
      EXPECT_GT(one.num_outputs, 0u);
      EXPECT_LE(one.launch.smem_bytes, 48 << 10);  // what every architecture has
      EXPECT_EQ(one.launch.grid.x % one.launch.cluster.x, 0u);
      if (one.map_over == MapOver::kNothing) continue;
      TensorMapSpec map = one.map;
      map.address = 256;
      EXPECT_NO_THROW(validate(map));
    }
  }
}

TEST(ConformanceCases, MakeTheSameInputsTwice) {
  for (const Group& group : all_groups()) {
    for (const Case& one : group.cases) {
      EXPECT_EQ(inputs_of(group, one), inputs_of(group, one)) << group.name << "/" << one.name;
    }
  }
}

// Other inputs: record the fixtures of that group again.
TEST(ConformanceCases, MakeTheInputsThatTheFixturesAreOf) {
  const std::map<std::string, std::string> expected = {
      {"mma", "86be0df4c12b9ef3f19d6ff817b42487"},
      {"wgmma", "e26a0caaf0a048d671b7da7dbcc926f3"},
      {"matrix", "1b43b8d5ae7e484ffc596a4585a77246"},
      {"scalar", "19172f4b352593db9419950193c05a96"},
      {"warp", "64bda6485a527fba0ef0c18c1476af27"},
      {"async", "060a8a0f49e5573fbeb068174830b84b"},
      {"tensor", "84ce9c08e295e967f98fabf871b5d373"},
      {"cluster", "dce8aca18fdae3540aee82bedc962e01"},
  };
  for (const Group& group : all_groups()) {
    std::string all;
    for (const Case& one : group.cases) {
      const Words words = inputs_of(group, one);
      all += one.name + digest_of(std::as_bytes(std::span(words))).text();
    }
    EXPECT_EQ(expected.at(group.name), digest_of(all).text()) << group.name;
  }
}

TEST(ConformanceCases, RoundToBf16AsTheDefinitionSays) {
  EXPECT_EQ(to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f808000U)), 0x3f80);  // a tie goes to even
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f818000U)), 0x3f82);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x7f7fffffU)), 0x7f80);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x7f800001U)), 0x7fff);
  EXPECT_EQ(make_float(true, -149), -0x1p-149f);
  EXPECT_EQ(make_float(false, 127, 0x7fffff), 0x1.fffffep127f);
}

}  // namespace
}  // namespace attune::conformance
