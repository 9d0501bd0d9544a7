#include "tuner/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "common/error.h"

namespace attune {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::uint16_t kNan = 0x7fc0;

AttentionInputs random_inputs(const std::string& problem_text, std::vector<int> kv_len,
                              int capacity, unsigned seed = 7) {
  AttentionInputs in;
  in.problem = Problem::parse(problem_text);
  in.problem.batch = static_cast<int>(kv_len.size());
  in.kv_len = std::move(kv_len);
  in.capacity = capacity;
  in.sm_scale = 0.3f;
  in.softcap = in.problem.softcap ? 2.0f : 0.0f;
  std::mt19937 random(seed);
  const auto fill = [&](std::vector<std::uint16_t>* data, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      data->push_back(float_to_bf16(static_cast<float>(random() % 2001) / 1000.0f - 1.0f));
    }
  };
  const std::size_t row = static_cast<std::size_t>(in.problem.head_dim);
  fill(&in.q, in.kv_len.size() * in.problem.seqlen_q * in.problem.num_q_heads * row);
  fill(&in.k, in.kv_len.size() * capacity * in.problem.num_kv_heads * row);
  fill(&in.v, in.kv_len.size() * capacity * in.problem.num_kv_heads * row);
  return in;
}

// The formula once more, written from the point of view of a key: may the query see it?
AttentionOutputs naive(const AttentionInputs& in) {
  const Problem& p = in.problem;
  const std::size_t heads = static_cast<std::size_t>(p.num_q_heads);
  AttentionOutputs answer;
  for (std::size_t b = 0; b < in.kv_len.size(); ++b) {
    for (int t = 0; t < p.seqlen_q; ++t) {
      for (std::size_t h = 0; h < heads; ++h) {
        const int at = in.kv_len[b] - p.seqlen_q + t;
        const std::uint16_t* q = &in.q[((b * p.seqlen_q + t) * heads + h) * p.head_dim];
        std::vector<double> out(static_cast<std::size_t>(p.head_dim));
        double sum = 0;
        for (int key = 0; key < in.kv_len[b]; ++key) {
          if (at < 0 || (p.causal && key > at)) continue;
          if (p.window > 0 && key < at - p.window + 1) continue;
          const int slot = p.kv_layout == KvLayout::kRing ? key % in.capacity : key;
          const std::size_t row =
              ((b * in.capacity + slot) * p.num_kv_heads + h / p.group_size()) * p.head_dim;
          double score = 0;
          for (int d = 0; d < p.head_dim; ++d) {
            score += static_cast<double>(bf16_to_float(q[d])) * bf16_to_float(in.k[row + d]);
          }
          score *= in.sm_scale;
          if (p.softcap) score = in.softcap * std::tanh(score / in.softcap);
          sum += std::exp(score);
          for (int d = 0; d < p.head_dim; ++d) {
            out[d] += std::exp(score) * bf16_to_float(in.v[row + d]);
          }
        }
        for (const double value : out) answer.out.push_back(sum > 0 ? value / sum : 0);
        answer.lse.push_back(std::log(sum));
      }
    }
  }
  return answer;
}

void expect_equal(const AttentionInputs& in) {
  const AttentionOutputs expected = naive(in);
  const AttentionOutputs got = reference_attention(in, 2);
  ASSERT_EQ(got.out.size(), expected.out.size());
  EXPECT_LT(relative_l2(got.out, expected.out), 1e-12) << in.problem.text();
  for (std::size_t i = 0; i < expected.lse.size(); ++i) {
    if (std::isinf(expected.lse[i])) {
      EXPECT_EQ(got.lse[i], -kInfinity);
    } else {
      EXPECT_NEAR(got.lse[i], expected.lse[i], 1e-12);
    }
  }
}

TEST(Reference, AveragesValuesByHandComputedWeights) {
  AttentionInputs in = random_inputs("decode/b1/q1/kv1-2/h1x1/d64/contiguous/bf16", {2}, 2);
  std::fill(in.q.begin(), in.q.end(), 0);
  std::fill(in.k.begin(), in.k.end(), 0);
  in.q[0] = float_to_bf16(1.0f);
  in.k[64] = float_to_bf16(2.0f);  // of the second key
  in.sm_scale = 0.5f;              // scores 0 and 1
  const AttentionOutputs got = reference_attention(in);
  const double weight = std::exp(1.0) / (1 + std::exp(1.0));
  EXPECT_NEAR(got.out[5],
              (1 - weight) * bf16_to_float(in.v[5]) + weight * bf16_to_float(in.v[64 + 5]), 1e-15);
  EXPECT_NEAR(got.lse[0], std::log(1 + std::exp(1.0)), 1e-15);
}

TEST(Reference, GivesZeroAndMinusInfinityWhereNothingIsSeen) {
  const AttentionInputs in =
      random_inputs("verify/b1/q3/kv1-2/h2x1/d64/contiguous/bf16", {0, 2}, 2);
  const AttentionOutputs got = reference_attention(in);
  const std::size_t row = 64;
  for (int i = 0; i < 3 * 2; ++i) EXPECT_EQ(got.lse[i], -kInfinity);  // the empty sequence
  for (std::size_t i = 0; i < 8 * row; ++i) EXPECT_EQ(got.out[i], 0.0);
  EXPECT_EQ(got.lse[7], -kInfinity);  // its first token is before the start
  EXPECT_TRUE(std::isfinite(got.lse[8]));
}

TEST(Reference, AgreesWithANaiveFormulation) {
  expect_equal(random_inputs("decode/b1/q1/kv1-40/h6x2/d64/contiguous/bf16", {1, 17, 40}, 40));
  expect_equal(random_inputs("verify/b1/q4/kv1-40/h3x1/d64/contiguous/bf16", {3, 4, 5, 33}, 40));
  expect_equal(random_inputs("verify/b1/q4/kv1-40/h2x2/d64/full/contiguous/bf16", {2, 9}, 40));
  expect_equal(
      random_inputs("verify/b1/q4/kv1-40/h2x1/d64/w8/contiguous/bf16", {7, 8, 11, 40}, 40));
  expect_equal(random_inputs("verify/b1/q4/kv1-40/h2x1/d64/w8/full/contiguous/bf16", {9, 40}, 40));
  expect_equal(random_inputs("decode/b1/q1/kv1-9/h2x1/d128/softcap/contiguous/bf16", {9}, 9));
}

TEST(Reference, FindsRingPositionsModuloTheCapacity) {
  expect_equal(random_inputs("verify/b1/q3/kv1-90/h2x1/d64/w8/ring/bf16", {1, 10, 11, 12, 90}, 10));
}

TEST(Reference, NeverReadsWhatNoQuerySees) {
  AttentionInputs in = random_inputs("verify/b1/q2/kv1-32/h1x1/d64/w8/contiguous/bf16", {20}, 32);
  const AttentionOutputs clean = reference_attention(in);
  for (int key = 0; key < 32; ++key) {
    if (key >= 20 - 2 - 8 + 1 && key < 20) continue;
    for (int d = 0; d < 64; ++d) in.k[key * 64 + d] = in.v[key * 64 + d] = kNan;
  }
  EXPECT_EQ(reference_attention(in).out, clean.out);
}

TEST(Reference, IsTheSameForAnyNumberOfThreads) {
  const AttentionInputs in =
      random_inputs("verify/b1/q4/kv1-40/h6x2/d64/contiguous/bf16", {3, 40, 17}, 40);
  const AttentionOutputs one = reference_attention(in, 1);
  EXPECT_EQ(reference_attention(in, 5).out, one.out);
  EXPECT_EQ(reference_attention(in, 5).lse, one.lse);
}

TEST(Reference, SurvivesScoresThatOverflowAnUnshiftedSoftmax) {
  AttentionInputs in = random_inputs("decode/b1/q1/kv1-8/h1x1/d64/contiguous/bf16", {8}, 8);
  in.sm_scale = 5000.0f;
  for (const double value : reference_attention(in).out) EXPECT_TRUE(std::isfinite(value));
}

TEST(Reference, RefusesTensorsOfTheWrongSize) {
  AttentionInputs in = random_inputs("decode/b1/q1/kv1-8/h1x1/d64/contiguous/bf16", {8}, 8);
  in.k.pop_back();
  EXPECT_THROW(reference_attention(in), InvalidArgument);
}

TEST(Reference, RefusesALengthBeyondTheBuffer) {
  EXPECT_THROW(
      reference_attention(random_inputs("decode/b1/q1/kv1-8/h1x1/d64/contiguous/bf16", {9}, 8)),
      InvalidArgument);
  EXPECT_THROW(
      reference_attention(random_inputs("verify/b1/q4/kv1-8/h1x1/d64/w8/ring/bf16", {40}, 10)),
      InvalidArgument);
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(float_to_bf16(1.0f + 1.0f / 256), 0x3f80);  // a tie goes to even
  EXPECT_EQ(float_to_bf16(1.0f + 3.0f / 256), 0x3f82);  // up here
  EXPECT_EQ(float_to_bf16(1.0f + 1.01f / 256), 0x3f81);
  EXPECT_EQ(float_to_bf16(-kInfinity), 0xff80);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::nanf("")))));
  EXPECT_EQ(bf16_to_float(0x4049), 3.140625f);
}

TEST(RelativeL2, IsTheNormOfTheDifference) {
  EXPECT_DOUBLE_EQ(relative_l2({3, 4.5}, {3, 4}), 0.1);
  EXPECT_EQ(relative_l2({0, 0}, {0, 0}), 0);
  EXPECT_EQ(relative_l2({1e-9}, {0}), kInfinity);
  EXPECT_EQ(relative_l2({std::nan("")}, {1}), kInfinity);
}

}  // namespace
}  // namespace attune
