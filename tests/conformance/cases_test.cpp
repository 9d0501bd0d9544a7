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

TEST(ConformanceCases, MakeTheInputsThatTheFixturesAreOf) {
  // Another digest means other inputs: record the fixtures again.
  Random random(1);
  std::uint64_t folded = 0;
  for (int i = 0; i < 1000; ++i) {
    folded = folded * 31 + std::bit_cast<std::uint32_t>(random.normal());
    folded = folded * 31 + std::bit_cast<std::uint32_t>(random.wide(-140, 127));
    folded = folded * 31 + static_cast<std::uint32_t>(random.between(-5, 1000));
  }
  EXPECT_EQ(folded, 7959664906522390016u);
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
