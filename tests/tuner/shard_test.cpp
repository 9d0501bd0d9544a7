#include "tuner/shard.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "common/error.h"
#include "tuner/tuner.h"

namespace attune {
namespace {

std::vector<Problem> preset() {
  std::vector<Problem> problems;
  for (const char* text : {"decode/b1/q1/kv1-1024/h32x4/d512/contiguous/bf16",
                           "decode/b1/q1/kv1025-131072/h32x4/d512/contiguous/bf16",
                           "verify/b1/q8/kv1-131072/h32x4/d512/contiguous/bf16",
                           "decode/b1/q1/kv1-131072/h32x16/d256/w1024/ring/bf16",
                           "verify/b1/q8/kv1-131072/h32x16/d256/w1024/ring/bf16",
                           "decode/b4/q1/kv1-131072/h32x4/d512/contiguous/bf16",
                           "decode/b8/q1/kv1-131072/h32x4/d512/contiguous/bf16",
                           "prefill/b1/q512/kv512-131072/h32x4/d512/p64/unified-paged/bf16"}) {
    problems.push_back(Problem::parse(text));
  }
  return problems;
}

std::set<std::string> texts(const std::vector<Problem>& problems) {
  std::set<std::string> all;
  for (const Problem& problem : problems) all.insert(problem.text());
  return all;
}

TEST(Shard, ReadsItsText) {
  EXPECT_EQ(Shard::parse("0/1"), (Shard{0, 1}));
  EXPECT_EQ(Shard::parse("3/16"), (Shard{3, 16}));
  for (const char* wrong : {"", "1", "4/4", "-1/4", "0/0", "1/2/3", "a/b", "0/4 "}) {
    EXPECT_THROW(Shard::parse(wrong), InvalidArgument) << wrong;
  }
}

TEST(Shard, TogetherTheyHaveEveryProblemOnce) {
  for (std::size_t count = 1; count <= 12; ++count) {
    std::multiset<std::string> all;
    for (std::size_t idx = 0; idx < count; ++idx) {
      for (const Problem& one : problems_of_shard(preset(), {idx, count})) all.insert(one.text());
    }
    const auto expected = texts(preset());
    EXPECT_EQ(all, std::multiset<std::string>(expected.begin(), expected.end())) << count;
  }
}

TEST(Shard, DoesNotDependOnTheOrderOfTheProblems) {
  std::vector<Problem> reversed = preset();
  std::reverse(reversed.begin(), reversed.end());
  for (std::size_t idx = 0; idx < 3; ++idx) {
    EXPECT_EQ(texts(problems_of_shard(preset(), {idx, 3})),
              texts(problems_of_shard(reversed, {idx, 3})));
  }
}

TEST(Shard, KeepsWhatIsMeasuredTogether) {
  for (std::size_t idx = 0; idx < 4; ++idx) {
    const auto mine = texts(problems_of_shard(preset(), {idx, 4}));
    EXPECT_EQ(mine.count("decode/b1/q1/kv1-1024/h32x4/d512/contiguous/bf16"),
              mine.count("decode/b1/q1/kv1025-131072/h32x4/d512/contiguous/bf16"));
  }
}

TEST(Shard, GivesAllAboutTheSame) {
  std::size_t most = 0, least = 99;
  for (std::size_t idx = 0; idx < 3; ++idx) {
    const std::size_t num_units = group_problems(problems_of_shard(preset(), {idx, 3})).size();
    most = std::max(most, num_units);
    least = std::min(least, num_units);
  }
  EXPECT_GE(least, 1u);
  EXPECT_LE(most, 4u);  // of 7
}

}  // namespace
}  // namespace attune
