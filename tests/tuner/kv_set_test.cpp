#include "tuner/kv_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "templates/launch_plan.h"

namespace attune {
namespace {

const std::vector<int> kMixed = {10, 300, 64};

KvSet set_of(const char* problem, const std::vector<int>& kv_lens) {
  return kv_set(Problem::parse(problem), kv_lens);
}

TEST(KvSet, GivesEverySequenceTheRowsOfTheLongest) {
  const KvSet set = set_of("decode/b3/q1/kv1-1024/h4x2/d64/contiguous/bf16", kMixed);
  const std::size_t row_bytes = 2 * 2 * 64 * 2;  // K and V
  EXPECT_EQ(set.capacity, 300);
  EXPECT_EQ(set.bytes, 3 * 300 * row_bytes);
  EXPECT_EQ(set.used_bytes, (10 + 300 + 64) * row_bytes);
}

TEST(KvSet, HoldsUnifiedRowsOnce) {
  const KvSet set =
      set_of("decode/b8/q1/kv1-131072/h32x4/d512/unified/bf16", std::vector<int>(8, 131072));
  EXPECT_EQ(set.bytes, std::size_t{8} * 131072 * 4 * 640 * 2);
  EXPECT_EQ(set.used_bytes, set.bytes);
}

TEST(KvSet, GivesASequenceOnlyThePagesItNeeds) {
  const KvSet set = set_of("decode/b3/q1/kv1-1024/h4x2/d64/p64/paged/bf16", kMixed);
  EXPECT_EQ(set.capacity, 320);
  EXPECT_EQ(set.rows, (std::vector<std::int64_t>{64, 320, 64}));
  EXPECT_EQ(set.bytes, std::size_t{448} * 2 * 2 * 64 * 2);
  EXPECT_EQ(set.used_bytes, set.bytes);
}

TEST(KvSet, HasRingsOfOneSize) {
  const char* text = "verify/b3/q4/kv1-5000/h4x2/d64/w100/ring/bf16";
  const KvSet set = set_of(text, kMixed);
  EXPECT_GE(set.capacity, min_ring_capacity(Problem::parse(text)));
  EXPECT_EQ(kv_set(Problem::parse("decode/b1/q1/kv1-131072/h4x2/d64/w1024/ring/bf16"), {{131072}})
                .capacity,
            1024 + 15);
  EXPECT_EQ(set.used_bytes, set.bytes);
  EXPECT_EQ(set.bytes, set_of(text, {1, 1, 1}).bytes);
}

TEST(SetsInTurn, CountWhatIsReadAndNotWhatIsAllocated) {
  KvSet set;
  set.bytes = 1000;
  set.used_bytes = 100;
  EXPECT_EQ(sets_in_turn(set, 1000, 32), 10U);
  EXPECT_EQ(sets_in_turn(set, 1000, 4), 4U);  // no launch is on a set twice
  set.used_bytes = 1000;
  EXPECT_EQ(sets_in_turn(set, 1000, 32), 2U);
  EXPECT_EQ(sets_in_turn(set, 1000, 1), 2U);
}

TEST(PageIds, NameEveryPageOnceAndRepeatTheLastOneOfAShortSequence) {
  const Problem problem = Problem::parse("decode/b3/q1/kv1-1024/h4x2/d64/p64/paged/bf16");
  const KvSet set = kv_set(problem, kMixed);
  const std::vector<int> table = page_ids(problem, set, 7);
  ASSERT_EQ(table.size(), 3U * 5);
  EXPECT_EQ(std::set<int>(table.begin(), table.end()), (std::set<int>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(std::set<int>(table.begin() + 5, table.begin() + 10).size(), 5U);
  EXPECT_EQ(std::count(table.begin(), table.begin() + 5, table[0]), 5);
  EXPECT_EQ(std::count(table.begin() + 10, table.end(), table[10]), 5);
}

}  // namespace
}  // namespace attune
