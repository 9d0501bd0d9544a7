#include "tests/conformance/fixture.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/conformance/compare.h"
#include "tests/support/temporary_folder.h"

namespace attune::conformance {
namespace {

std::vector<std::byte> bytes_of(const Words& words) {
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

TEST(ConformanceFixture, ComesBackAsItWasWritten) {
  const TemporaryFolder folder;
  Outputs outputs;
  outputs["a"] = bytes_of({1, 2, 0x01020304});
  outputs["b/c"] = bytes_of({});
  Random random(7);
  Words words(1000);
  for (std::uint32_t& word : words) word = random.bits();
  outputs["random"] = bytes_of(words);
  write_fixture(folder.path(), "sample", outputs);
  EXPECT_EQ(read_fixture(folder.path(), "sample"), outputs);
}

TEST(ConformanceFixture, RefusesADamagedFile) {
  std::string file = encode({{"a", bytes_of({1, 2, 3, 4})}});
  file[file.size() - 2] = static_cast<char>(file[file.size() - 2] ^ 16);
  EXPECT_THROW(decode(file), InvalidArgument);
  EXPECT_THROW(decode("something else"), InvalidArgument);
  EXPECT_THROW(read_fixture("/nowhere", "mma"), InvalidArgument);
}

// A case of the inputs 1 and 0.
Group sample() {
  Case one;
  one.name = "c";
  one.inputs = [](Random&) { return Words{0x3f800000, 0}; };
  return {"g", {one}};
}

Comparison judge(const Group& group, Judge how, Words expected, Words actual) {
  Case one = group.cases.at(0);
  one.judge = how;
  return compare(group, one, bytes_of(expected), bytes_of(actual));
}

TEST(ConformanceCompare, HoldsBitsUnlessTheCaseSaysOtherwise) {
  const Group group = sample();
  const Comparison bits = judge(group, Judge::kBits, {0x7fffffff, 5}, {0x7fc00000, 5});
  EXPECT_EQ(bits.num_words, 2u);
  EXPECT_EQ(bits.num_mismatches, 1u);
  EXPECT_EQ(bits.first, "output 0: expected 7fffffff, got 7fc00000");
  EXPECT_EQ(judge(group, Judge::kNan, {0x7fffffff, 5}, {0xffc00000, 5}).num_mismatches, 0u);
  EXPECT_EQ(judge(group, Judge::kNan, {0x7fffffff, 5}, {0x7f800000, 5}).num_mismatches, 1u);
}

TEST(ConformanceCompare, HoldsApproximationsToTheirDocumentedError) {
  const Group group = sample();
  const Words exact = {0x40000000, 0x3f800000};  // 2 and 1
  EXPECT_EQ(judge(group, Judge::kExp2, exact, {0x40000001, 0x3f7fffff}).num_mismatches, 0u);
  EXPECT_EQ(judge(group, Judge::kExp2, exact, {0x40000003, 0x3f800000}).num_mismatches, 1u);
  EXPECT_EQ(judge(group, Judge::kExp2, exact, {0x40000000, 0x7f800000}).num_mismatches, 1u);
  EXPECT_EQ(judge(group, Judge::kReciprocal, {0x3f800000, 0x7f800000}, {0x3f7fffff, 0x7f800000})
                .num_mismatches,
            0u);
}

}  // namespace
}  // namespace attune::conformance
