// The cases themselves: what they ask for is legal, and their inputs are the same everywhere.
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
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

// What a case's outputs follow from, but for the kernels.
std::string text_of(const Group& group, const Case& one) {
  const Words words = inputs_of(group, one);
  const TensorMapSpec& map = one.map;
  return fmt::format(
      "{} {} {} {} {} {} {} {} | {} {} {} {} {} {} {}\n", one.name, one.kernel, one.launch.grid.x,
      one.launch.block.x, one.launch.cluster.x, fmt::join(one.args, ","), one.num_outputs,
      digest_of(std::as_bytes(std::span(words))).text(), static_cast<int>(map.type), map.rank,
      fmt::join(map.size, ","), fmt::join(map.stride_bytes, ","), fmt::join(map.box, ","),
      static_cast<int>(map.swizzle), static_cast<int>(map.fill));
}

// Other cases: record the fixtures of that group again.
TEST(ConformanceCases, AreThoseThatTheFixturesAreOf) {
  const std::map<std::string, std::string> expected = {
      {"mma", "00afb7e42fe0bdf10366d57b296df205"},
      {"wgmma", "36fd00df1bb0c6c7777bc42ce56d34d2"},
      {"matrix", "43551c5d44d3e7a2d3f15eca9cf5ba1b"},
      {"scalar", "93e155fabe1c61b387992e2b80fa87df"},
      {"warp", "3d37c3d084419985345840e7b2321c29"},
      {"async", "0cfe3be6029b47ec41c8e555bbf3fd8e"},
      {"tensor", "cd20bd0d04e8dd45e2c02ebfc8035fc0"},
      {"cluster", "73e788605e63f618f44665696ce1faf3"},
  };
  for (const Group& group : all_groups()) {
    std::string all;
    for (const Case& one : group.cases) all += text_of(group, one);
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
