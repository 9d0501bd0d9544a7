#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tuner/verify.h"

namespace attune {
namespace {

std::set<int> lens_of(const std::string& problem) {
  const std::vector<int> lens = edge_kv_lens(Problem::parse(problem));
  EXPECT_TRUE(std::is_sorted(lens.begin(), lens.end()));
  EXPECT_GE(lens.front(), 0);
  return {lens.begin(), lens.end()};
}

void expect_has(const std::set<int>& lens, std::initializer_list<int> wanted) {
  for (const int kv_len : wanted) EXPECT_EQ(lens.count(kv_len), 1u) << kv_len;
}

const VerifyCase& find_case(const std::vector<VerifyCase>& cases, const std::string& name) {
  for (const VerifyCase& one : cases) {
    if (one.name == name) return one;
  }
  throw std::runtime_error("no case " + name);
}

bool is_nan(std::uint16_t bits) { return std::isnan(bf16_to_float(bits)); }

TEST(EdgeKvLens, HoldEmptyOneAndTheNeighboursOfEveryTile) {
  const auto lens = lens_of("decode/b1/q1/kv1-4096/h8x1/d128/contiguous/bf16");
  expect_has(lens,
             {0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 513, 1023, 1024, 1025});
  EXPECT_LE(*lens.rbegin(), 1100);
}

TEST(EdgeKvLens, HoldFewerTokensThanQueries) {
  expect_has(lens_of("verify/b1/q9/kv1-4096/h8x1/d128/contiguous/bf16"), {8, 9});
}

TEST(EdgeKvLens, HoldTheEdgesOfAWindow) {
  expect_has(lens_of("verify/b1/q5/kv1-4096/h8x1/d128/w200/contiguous/bf16"),
             {199, 200, 201, 204, 205});
}

TEST(EdgeKvLens, HoldTheWrapOfTheSmallestRing) {
  expect_has(lens_of("verify/b1/q5/kv1-4096/h8x1/d128/w200/ring/bf16"), {203, 204, 205, 411, 611});
  // A short window has a ring of a whole tile.
  expect_has(lens_of("decode/b1/q1/kv1-4096/h8x1/d128/w17/ring/bf16"), {127, 128, 129, 259, 383});
}

TEST(VerifyCases, PutAllEdgesInOneLaunchOfFewHeads) {
  const Problem problem = Problem::parse("verify/b4/q3/kv1-4096/h24x8/d64/contiguous/bf16");
  const auto cases = verify_cases(problem, 1);
  const Problem& edges = find_case(cases, "edges").inputs.problem;
  EXPECT_EQ(find_case(cases, "edges").inputs.kv_len, edge_kv_lens(problem));
  EXPECT_EQ(edges.batch, static_cast<int>(edge_kv_lens(problem).size()));
  EXPECT_EQ(edges.num_kv_heads, 2);
  EXPECT_EQ(edges.group_size(), 3);
  EXPECT_EQ(edges.seqlen_q, 3);
  EXPECT_EQ(find_case(cases, kAccuracyCase).inputs.kv_len, std::vector<int>{4133});
}

TEST(VerifyCases, HideEveryKeyThatNoQuerySees) {
  for (const char* text : {"decode/b1/q1/kv1-4096/h2x1/d64/contiguous/bf16",
                           "verify/b1/q3/kv1-4096/h2x1/d64/w40/contiguous/bf16",
                           "verify/b1/q3/kv1-4096/h2x1/d64/w40/ring/bf16"}) {
    const Problem problem = Problem::parse(text);
    const auto cases = verify_cases(problem, 1);
    const AttentionInputs& in = find_case(cases, "edges").inputs;
    for (std::size_t b = 0; b < in.kv_len.size(); ++b) {
      std::set<int> visible;
      const int first = std::max(0, in.kv_len[b] - problem.seqlen_q - problem.window + 1);
      for (int p = problem.window > 0 ? first : 0; p < in.kv_len[b]; ++p) {
        visible.insert(problem.kv_layout == KvLayout::kRing ? p % in.capacity : p);
      }
      for (int row = 0; row < in.capacity; ++row) {
        const std::size_t at = (b * in.capacity + row) * 64;
        EXPECT_EQ(is_nan(in.k[at]), visible.count(row) == 0) << text << " " << in.kv_len[b];
        EXPECT_EQ(is_nan(in.v[at + 63]), visible.count(row) == 0) << text << " " << in.kv_len[b];
      }
    }
  }
}

TEST(VerifyCases, AreFixedByTheSeed) {
  const Problem problem = Problem::parse("decode/b1/q1/kv1-64/h2x1/d64/contiguous/bf16");
  const auto a = verify_cases(problem, 1), b = verify_cases(problem, 1),
             c = verify_cases(problem, 2);
  EXPECT_EQ(a[0].inputs.k, b[0].inputs.k);
  EXPECT_NE(a[0].inputs.q, c[0].inputs.q);
  EXPECT_NE(a[0].inputs.q, a[0].inputs.k);
}

TEST(VerifyCases, AreTheSameForEveryBatchAndRange) {
  const auto a = verify_cases(Problem::parse("verify/b1/q4/kv1-64/h4x1/d64/w30/ring/bf16"), 1);
  const auto b = verify_cases(Problem::parse("verify/b8/q4/kv9-999/h4x1/d64/w30/ring/bf16"), 1);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].inputs.problem, b[i].inputs.problem);
    EXPECT_EQ(a[i].inputs.kv_len, b[i].inputs.kv_len);
    EXPECT_EQ(a[i].expected.out, b[i].expected.out);
  }
}

TEST(VerifyCases, HaveScoresThatMatter) {
  const Problem problem = Problem::parse("decode/b1/q1/kv1-64/h2x1/d512/contiguous/bf16");
  const auto cases = verify_cases(problem, 1);
  // lse of n keys with normal scores of deviation s is about log(n) + s^2 / 2.
  EXPECT_NEAR(find_case(cases, kAccuracyCase).expected.lse[0], std::log(4133) + 2, 0.8);
  EXPECT_GT(find_case(cases, "large scores").expected.lse.back(), 60);
}

TEST(VerifyCases, SplitOffTheLengthsOfALongWindow) {
  const Problem problem = Problem::parse("decode/b1/q1/kv1-8192/h2x1/d64/w2000/contiguous/bf16");
  const auto cases = verify_cases(problem, 1);
  EXPECT_LE(find_case(cases, "edges").inputs.capacity, 1200);
  EXPECT_EQ(find_case(cases, "window edges").inputs.kv_len.front(), 1999);
}

}  // namespace
}  // namespace attune
