#include "templates/split_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "templates/problem.h"

namespace attune {
namespace {

// Whether query token `token` of a sequence sees key `key`, straight from the definition.
bool sees(int kv_len, int seqlen_q, int token, int window, bool causal, int key) {
  const int position = kv_len - seqlen_q + token;
  if (position < 0 || key < 0 || key >= kv_len) return false;
  if (causal && key > position) return false;
  return window == 0 || key > position - window;
}

// The keys that any of the tokens sees, found one by one. Sets `gap` when they are not one range.
KeyRange naive_visible_keys(int kv_len, int seqlen_q, int first, int last, int window, bool causal,
                            bool* gap) {
  KeyRange range{0, 0};
  bool any = false;
  for (int key = 0; key < kv_len; ++key) {
    bool seen = false;
    for (int token = first; token <= last; ++token) {
      seen |= sees(kv_len, seqlen_q, token, window, causal, key);
    }
    if (!seen) continue;
    if (!any) range.begin = key;
    if (any && key != range.end) *gap = true;
    range.end = key + 1;
    any = true;
  }
  return range;
}

TEST(VisibleKeys, AgreesWithTheDefinitionKeyByKey) {
  bool gap = false;
  for (int kv_len = 0; kv_len <= 24; ++kv_len) {
    for (int seqlen_q = 1; seqlen_q <= 16; seqlen_q += seqlen_q < 4 ? 1 : 4) {
      for (int first = 0; first < seqlen_q; ++first) {
        for (int last = first; last < seqlen_q; ++last) {
          for (const int window : {0, 1, 2, 7, 24, 100}) {
            for (const bool causal : {true, false}) {
              const KeyRange expected =
                  naive_visible_keys(kv_len, seqlen_q, first, last, window, causal, &gap);
              const KeyRange keys =
                  visible_keys(kv_len, seqlen_q, first, last, window, causal ? 1 : 0);
              ASSERT_EQ(keys.end - keys.begin, expected.end - expected.begin)
                  << "kv_len=" << kv_len << " seqlen_q=" << seqlen_q << " tokens=" << first << "-"
                  << last << " window=" << window << " causal=" << causal;
              if (keys.end > keys.begin) {
                ASSERT_EQ(keys.begin, expected.begin);
              }
            }
          }
        }
      }
    }
  }
  EXPECT_FALSE(gap);
}

TEST(VisibleKeys, ArePartOfTheSequence) {
  const KeyRange keys = visible_keys(131072, 16, 0, 15, 1024, 1);
  EXPECT_EQ(keys.begin, 131072 - 16 - 1023);
  EXPECT_EQ(keys.end, 131072);
}

TEST(VisibleKeys, AreNoneForAnEmptySequenceAndForTokensBeforeItsStart) {
  for (const int causal : {0, 1}) {
    const KeyRange empty = visible_keys(0, 1, 0, 0, 0, causal);
    EXPECT_EQ(empty.begin, empty.end);
    const KeyRange before = visible_keys(2, 8, 0, 5, 0, causal);
    EXPECT_EQ(before.begin, before.end);
  }
}

void check_split_plan(KeyRange keys, int block_n, int split_cap) {
  const int length = keys.end - keys.begin;
  const SplitPlan plan = plan_splits(keys, block_n, split_cap);
  const auto where = [&] {
    return testing::Message() << "keys=" << keys.begin << "-" << keys.end << " block_n=" << block_n
                              << " split_cap=" << split_cap << " splits=" << plan.num_splits
                              << " keys_per_split=" << plan.keys_per_split;
  };
  ASSERT_EQ(plan.keys.begin, keys.begin) << where();
  ASSERT_EQ(plan.keys.end, keys.end) << where();
  if (length == 0) {
    ASSERT_EQ(plan.num_splits, 0) << where();
    return;
  }
  ASSERT_GE(plan.num_splits, 1) << where();
  ASSERT_LE(plan.num_splits, split_cap) << where();
  ASSERT_EQ(plan.keys_per_split % kSplitGrain, 0) << where();
  // Splits of keys_per_split keys, none empty and all keys in exactly one: the last ends the range.
  ASSERT_LT((plan.num_splits - 1) * plan.keys_per_split, length) << where();
  ASSERT_GE(plan.num_splits * plan.keys_per_split, length) << where();
  // No more splits than tiles, so no CTA is started for less than about a tile.
  ASSERT_LE(plan.num_splits, (length + block_n - 1) / block_n) << where();
}

TEST(PlanSplits, CoversEveryKeyOnceAtEveryShortLength) {
  for (int length = 0; length <= 700; ++length) {
    for (const int begin : {0, 1, 17}) {
      for (const int block_n : {16, 32, 64, 128}) {
        for (const int split_cap : {1, 2, 3, 16, 33, 132}) {
          check_split_plan({begin, begin + length}, block_n, split_cap);
        }
      }
    }
  }
}

bool finds_room(const std::vector<int>& lengths, int num_slots, int size) {
  int64 slots = 0;
  for (const int length : lengths) slots += shared_splits(length, size);
  return slots <= num_slots;
}

// The size that find_shared_splits picks; 0 where none of those that it tries leaves room.
int shared_size(const std::vector<int>& lengths, int num_slots, int block_n) {
  const auto batch = static_cast<int>(lengths.size());
  const int64 all = std::accumulate(lengths.begin(), lengths.end(), int64{0});
  const auto coarse = [&](int idx) {
    return shared_split_size(all, num_slots, batch, block_n, idx);
  };
  for (int idx = 0; idx < kSplitSizes; ++idx) {
    if (!finds_room(lengths, num_slots, coarse(idx))) continue;
    if (idx == 0 || coarse(idx - 1) == coarse(idx)) return coarse(idx);
    for (int i = 0; i < kSplitSizes; ++i) {
      const int fine = finer_split_size(coarse(idx - 1), coarse(idx), i);
      if (finds_room(lengths, num_slots, fine)) return fine;
    }
    return 0;
  }
  return 0;
}

TEST(SharedSplits, AlwaysFindRoom) {
  std::mt19937 random(3);
  for (int run = 0; run < 20000; ++run) {
    const int batch = 2 + static_cast<int>(random() % (run % 10 == 0 ? 200 : 15));
    const int most = 1 << random() % 20;
    std::vector<int> lengths;
    for (int i = 0; i < batch; ++i) lengths.push_back(static_cast<int>(random() % (most + 1)));
    const int num_slots = batch + 1 + static_cast<int>(random() % (4 * batch));
    const int block_n = 16 << random() % 4;
    const int size = shared_size(lengths, num_slots, block_n);
    ASSERT_GE(size, block_n) << run;
    ASSERT_EQ(size % kSplitGrain, 0) << run;
    for (const int length : lengths) {
      // No split is empty, but that of a sequence without keys.
      const int splits = shared_splits(length, size);
      ASSERT_GE(splits, 1) << run;
      ASSERT_LT(int64{splits - 1} * size, std::max(length, 1)) << run;
      ASSERT_GE(int64{splits} * size, length) << run;
    }
  }
  EXPECT_GT(shared_size(std::vector<int>(65535, kMaxKvLen), 65536, 64), 0);
  EXPECT_GT(shared_size({kMaxKvLen, kMaxKvLen}, 3, 64), 0);
}

// Lengths of 512 to 65536 in 33 slots: no size below 1.108 even shares leaves room.
TEST(SharedSplits, AreAboutAsLongAsAnEvenShare) {
  const std::vector<int> lengths = {512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
  const int even = std::accumulate(lengths.begin(), lengths.end(), 0) / 33;
  const int size = shared_size(lengths, 33, 16);
  EXPECT_LE(size, even * 1.109);
  // Alike ones have as many splits as alone.
  EXPECT_EQ(shared_size(std::vector<int>(4, 8192), 32, 64), 8192 / 8);
}

TEST(PlanSplits, CoversEveryKeyOnceAtLongLengths) {
  for (const int power : {1 << 10, 1 << 13, 1 << 17, 1 << 20, kMaxKvLen}) {
    for (int length = power - 2; length <= power; ++length) {
      for (const int block_n : {16, 32, 64, 128}) {
        for (const int split_cap : {1, 2, 7, 32, 33, 66, 132, 1056}) {
          check_split_plan({0, length}, block_n, split_cap);
        }
      }
    }
  }
}

TEST(PlanSplits, GivesOneSplitToLessThanATile) {
  const SplitPlan plan = plan_splits({5, 6}, 64, 33);
  EXPECT_EQ(plan.num_splits, 1);
  EXPECT_EQ(plan.keys_per_split, kSplitGrain);
}

TEST(PlanSplits, DividesAWindowEvenly) {
  const SplitPlan plan = plan_splits({1000, 2024}, 64, 8);
  EXPECT_EQ(plan.num_splits, 8);
  EXPECT_EQ(plan.keys_per_split, 128);
}

TEST(PlanSplits, IsAConstantExpression) {
  static_assert(plan_splits({0, 8192}, 64, 33).num_splits == 32);
  static_assert(visible_keys(8192, 1, 0, 0, 0, 1).end == 8192);
}

TEST(Chunks, CoverEveryKeyOnceInOrder) {
  for (const int num_kv_heads : {1, 2, 4, 8, 16, 48}) {
    for (const int window : {0, 32, 512, 1024}) {
      for (const int head_dim : {64, 256, 512}) {
        const ChunkRule rule = chunk_rule(head_dim, num_kv_heads, window);
        EXPECT_EQ(rule.grain % invariant_block_n(head_dim), 0);
        EXPECT_EQ(chunk_begin(rule, 0), 0);
        for (int chunk = 0; chunk_begin(rule, chunk) < 300000; ++chunk) {
          const int begin = chunk_begin(rule, chunk);
          const int end = chunk_begin(rule, chunk + 1);
          ASSERT_LT(begin, end);
          ASSERT_EQ(chunk_of(rule, begin), chunk);
          ASSERT_EQ(chunk_of(rule, end - 1), chunk);
          ASSERT_EQ((end - begin) % rule.grain, 0);
        }
      }
    }
  }
}

TEST(Chunks, ReachToTheLongestContext) {
  const ChunkRule rule = chunk_rule(512, 4, 0);
  EXPECT_EQ(chunk_of(rule, 131071) + 1, 224);
  EXPECT_EQ(chunk_of(rule, (1 << 29) - 1) + 1, 224 + 12 * 32);
}

TEST(Chunks, ArePlannedFromTheLastKeyBackwards) {
  const ChunkRule rule{64, 0};
  const ChunkPlan all = plan_chunks(rule, {100, 300}, 8);
  EXPECT_EQ(all.first_chunk, 1);
  EXPECT_EQ(all.num_chunks, 4);
  const ChunkPlan capped = plan_chunks(rule, {100, 300}, 2);
  EXPECT_EQ(capped.first_chunk, 3);
  EXPECT_EQ(capped.num_chunks, 2);
  EXPECT_EQ(plan_chunks(rule, {7, 7}, 8).num_chunks, 0);
}

// Whatever a reciprocal with an error of one unit in the last place is. Beyond the limit it is wrong for
// some: the limit is not just careful.
TEST(TokenOfRow, IsTheQuotientUpToItsLimit) {
  const auto is_right = [](int packed, int group_size) {
    const float exact = 1.0f / static_cast<float>(group_size);
    // What is between them gives something between.
    for (const float of_group : {std::nextafter(exact, 0.0f), std::nextafter(exact, 2.0f)}) {
      if (token_of_row(packed, of_group) != packed / group_size) return false;
    }
    return true;
  };
  int num_wrong_behind = 0;
  for (int group_size = 1; group_size <= 64; ++group_size) {
    // A token's first and last rows are those that rounding puts elsewhere.
    for (int token = 0; token * group_size < kMostTokenRows; ++token) {
      const int first = token * group_size;
      const int last = std::min(first + group_size, kMostTokenRows) - 1;
      ASSERT_TRUE(is_right(first, group_size)) << first << " / " << group_size;
      ASSERT_TRUE(is_right(last, group_size)) << last << " / " << group_size;
    }
    for (int token = 2 * kMostTokenRows / group_size; token * group_size < 4 * kMostTokenRows;
         ++token) {
      num_wrong_behind += !is_right(token * group_size + group_size - 1, group_size);
    }
  }
  EXPECT_GT(num_wrong_behind, 0);
}

}  // namespace
}  // namespace attune
