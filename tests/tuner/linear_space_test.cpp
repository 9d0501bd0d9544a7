// The candidates of linear layers, their default and their reference: no device.
#include "tuner/linear_space.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "common/error.h"
#include "templates/model_plan.h"
#include "tuner/cost_model.h"
#include "tuner/linear_reference.h"
#include "tuner/reference.h"
#include "tuner/search.h"
#include "tuner/timer.h"

namespace attune {
namespace {

const Problem kGeglu = Problem::parse("linear/m8/n21504/k5376/geglu/bf16");

std::set<std::string> kept_of(const Problem& problem, const DeviceInfo& device) {
  std::set<std::string> kept;
  for (const Candidate& one : candidate_space(problem, device).kept) kept.insert(one.text());
  return kept;
}

std::string reason_against(const CandidateSpace& space, const std::string& candidate) {
  for (const PrunedCandidate& one : space.pruned) {
    if (one.candidate.text() == candidate) return one.rejection.detail;
  }
  return "not pruned";
}

TEST(LinearSpace, HasTheFastOnesOfAnH200AndItsDefault) {
  const DeviceInfo device = architecture_limits("sm_90a");
  const std::set<std::string> kept = kept_of(kGeglu, device);
  for (const char* fast : {"linear/m8n48s3w8/x1", "linear/m8n32s3w8/x1", "linear/m8n48s2w8/x1"}) {
    EXPECT_EQ(kept.count(fast), 1u) << fast;
  }
  EXPECT_LE(kept.size(), 16u);  // so that a normal tune leaves none out
  EXPECT_EQ(default_candidate(kGeglu, device).text(), "linear/m8n48s3w8/x1");
  const SearchPlan plan = plan_search(kGeglu, device, Effort::kNormal);
  EXPECT_EQ(plan.space.kept.size(), kept.size());
}

TEST(LinearSpace, HasTheDefaultWhateverTheShape) {
  for (const char* arch : {"sm_90a", "sm_100a", "host"}) {
    const DeviceInfo device = architecture_limits(arch);
    for (const char* text :
         {"linear/m8/n1/k8/store/bf16", "linear/m16/n64/k64/geglu/int4",
          "linear/m16/n262144/k5376/logits/bf16", "linear/m8/n5376/k21504/store/int4"}) {
      const Problem problem = Problem::parse(text);
      const std::set<std::string> kept = kept_of(problem, device);
      EXPECT_EQ(kept.count(default_candidate(problem, device).text()), 1u) << text << arch;
      EXPECT_LE(kept.size(), 20u) << text << arch;
    }
  }
}

TEST(LinearSpace, SaysWhyAConfigIsNotTried) {
  const CandidateSpace space = candidate_space(kGeglu, architecture_limits("sm_90a"));
  const auto all = families_of(Op::kLinear).front().configs(kGeglu);
  EXPECT_EQ(space.kept.size() + space.pruned.size(), all.size());
  EXPECT_NE(reason_against(space, "linear/m8n48s8w8/x1").find("smem_bytes="), std::string::npos);
  EXPECT_NE(reason_against(space, "linear/m8n16s2w8/x1").find("below a quarter"),
            std::string::npos);
  EXPECT_NE(reason_against(space, "linear/m8n96s1w8/x1").find("num_stages=1"), std::string::npos);
  // 41 outputs of a CTA: 64 rows of a slot are as good as 48.
  const Problem narrow = Problem::parse("linear/m8/n5376/k8192/store/bf16");
  const CandidateSpace few = candidate_space(narrow, architecture_limits("sm_90a"));
  EXPECT_NE(reason_against(few, "linear/m8n64s2w8/x1").find("has as few passes, 1"),
            std::string::npos);
}

// Whoever is dropped in favour of another config is so in favour of one that is tried.
TEST(LinearSpace, WhatAnotherIsDroppedForIsTried) {
  int num_compared = 0;
  for (const char* text : {"linear/m8/n21504/k5376/geglu/bf16", "linear/m8/n5376/k8192/store/bf16",
                           "linear/m16/n5376/k8192/store/bf16", "linear/m16/n64/k64/geglu/int4",
                           "linear/m1/n5376/k21504/store/int4", "linear/m8/n512/k512/store/int4",
                           "linear/m16/n1024/k2048/logits/bf16", "linear/m8/n1/k8/store/bf16"}) {
    const Problem problem = Problem::parse(text);
    for (const char* arch : {"sm_90a", "sm_100a", "sm_120", "host"}) {
      for (const int sms : {20, 78, 132}) {
        DeviceInfo device = architecture_limits(arch);
        device.num_sms = sms;
        const CandidateSpace space = candidate_space(problem, device);
        const std::set<std::string> kept = kept_of(problem, device);
        for (const PrunedCandidate& one : space.pruned) {
          const std::string& detail = one.rejection.detail;
          for (const char* words : {" has as few passes", " has room"}) {
            const std::size_t end = detail.find(words);
            if (end == std::string::npos) continue;
            const std::size_t begin = detail.rfind(' ', end - 1) + 1;
            const std::string other = "linear/" + detail.substr(begin, end - begin) + "/x1";
            EXPECT_EQ(kept.count(other), 1u) << text << " " << arch << " " << sms << ": "
                                             << one.candidate.text() << " " << detail;
            ++num_compared;
          }
        }
      }
    }
  }
  EXPECT_GT(num_compared, 100);
}

// The narrow ones have too few bytes under way: of the wide ones, which have as few passes, one is tried.
TEST(LinearSpace, AConfigIsNotDroppedForOneThatIsTooSmall) {
  const DeviceInfo device = architecture_limits("sm_90a");
  const Problem problem = Problem::parse("linear/m8/n512/k5376/store/bf16");
  const CandidateSpace space = candidate_space(problem, device);
  ASSERT_NE(reason_against(space, "linear/m8n16s2w8/x1").find("below a quarter"),
            std::string::npos);
  EXPECT_EQ(reason_against(space, "linear/m8n32s2w8/x1"), "not pruned");
  EXPECT_NE(reason_against(space, "linear/m8n48s2w8/x1").find("m8n32s2w8 has as few passes, 1"),
            std::string::npos)
      << reason_against(space, "linear/m8n48s2w8/x1");
}

TEST(LinearSpace, OneSlotIsTriedWhereTwoFindNoRoom) {
  DeviceInfo small = architecture_limits("sm_90a");
  const Problem problem = Problem::parse("linear/m16/n512/k512/store/int4");
  small.max_smem_per_block_bytes =
      linear_smem_bytes({16, 16, 2, linear_warps(LinearWeights::kInt4)}, LinearWeights::kInt4) - 1;
  small.smem_per_sm_bytes = small.max_smem_per_block_bytes;
  EXPECT_EQ(default_candidate(problem, small).text(), "linear/m16n16s1w16/x1");
  small.max_smem_per_block_bytes =
      linear_smem_bytes({16, 16, 1, linear_warps(LinearWeights::kInt4)}, LinearWeights::kInt4) - 1;
  EXPECT_TRUE(candidate_space(problem, small).kept.empty());
  EXPECT_THROW(default_candidate(problem, small), InvalidArgument);
  EXPECT_THROW(default_candidate(problem, architecture_limits("sm_80")), InvalidArgument);
}

TEST(LinearSpace, AQuickTuneHasTheMostPromisingAndTheDefault) {
  const DeviceInfo device = architecture_limits("sm_90a");
  const SearchPlan quick = plan_search(kGeglu, device, Effort::kQuick);
  EXPECT_LT(quick.space.kept.size(),
            plan_search(kGeglu, device, Effort::kNormal).space.kept.size());
  EXPECT_EQ(std::count(quick.space.kept.begin(), quick.space.kept.end(), quick.default_candidate),
            1);
  const auto order = ranked(kGeglu, candidate_space(kGeglu, device).kept, device);
  EXPECT_EQ(order.front().config.block_n, 80);  // the fewest passes
}

TEST(LinearSpace, ExpertsHaveRoomForTheirListBesideTheSlots) {
  const DeviceInfo device = architecture_limits("sm_90a");
  for (const char* text :
       {"experts/m1/n704/k2816/geglu/bf16/e128x8", "experts/m8/n704/k2816/geglu/bf16/e128x8",
        "experts/m16/n2816/k704/store/bf16/e128x8", "experts/m1/n704/k2816/geglu/int4/e128x8",
        "experts/m8/n2816/k704/store/int4/e128x8", "experts/m16/n704/k2816/geglu/int4/e128x8"}) {
    const Problem problem = Problem::parse(text);
    const std::set<std::string> kept = kept_of(problem, device);
    EXPECT_EQ(kept.count(default_candidate(problem, device).text()), 1u) << text;
    EXPECT_LE(kept.size(), 20u) << text;
    for (const std::string& one : kept) EXPECT_TRUE(one.starts_with("experts/")) << one;
  }
  const Problem gate_up = Problem::parse("experts/m8/n704/k2816/geglu/bf16/e128x8");
  EXPECT_EQ(default_candidate(gate_up, device).text(), "experts/m8n48s3w8/x1");
  // Where the slots alone would fill the shared memory there is a smaller one.
  DeviceInfo small = device;
  small.max_smem_per_block_bytes = linear_smem_bytes({8, 48, 3, 8}, LinearWeights::kBf16);
  EXPECT_EQ(default_candidate(gate_up, small).text(), "experts/m8n48s2w8/x1");
  EXPECT_EQ(default_candidate(kGeglu, small).text(), "linear/m8n48s3w8/x1");
}

TEST(LinearSpace, KernelsAreOfTheEpilogueNotOfTheShape) {
  const Candidate candidate = Candidate::parse("linear/m8n48s2w8/x1");
  const auto variant_of = [&](const char* text) {
    return candidate.variant(Problem::parse(text)).text();
  };
  EXPECT_EQ(variant_of("linear/m8/n64/k64/store/bf16"), variant_of("linear/m8/n512/k8/store/bf16"));
  EXPECT_NE(variant_of("linear/m8/n64/k64/store/bf16"), variant_of("linear/m8/n64/k64/store/int4"));
}

TEST(LinearWork, CountsEveryByteOnce) {
  EXPECT_EQ(problem_bytes(Problem::parse("linear/m8/n64/k32/geglu/bf16"), 1),
            2 * (128 * 32) + 8 * (2 * 32 + 2 * 64));
  EXPECT_EQ(problem_bytes(Problem::parse("linear/m16/n64/k512/logits/int4"), 1),
            2 * 64 * kInt4RowBytes + 16 * (2 * 512 + 4 * 64));
  EXPECT_EQ(problem_flops(Problem::parse("linear/m8/n64/k32/geglu/bf16"), 1), 2.0 * 8 * 128 * 32);
  // 52 of 128 experts, of which each token chose 8.
  EXPECT_EQ(problem_bytes(Problem::parse("experts/m8/n64/k32/geglu/bf16/e128x8"), 1),
            52 * 2 * (128 * 32) + 8 * (2 * 32 + 52 * 2 * 64));
  EXPECT_EQ(problem_bytes(Problem::parse("experts/m1/n64/k512/store/int4/e128x8"), 1),
            8 * 2 * 64 * kInt4RowBytes + 8 * (2 * 512 + 2 * 64));
  EXPECT_EQ(problem_flops(Problem::parse("experts/m8/n64/k32/geglu/bf16/e128x8"), 1),
            8 * 2.0 * 8 * 128 * 32);
}

// Sums over the bytes of W as a kernel finds them, by the format's words.
double sum_of(const LinearInputs& inputs, int token, int row) {
  const LinearShape& shape = inputs.problem.linear;
  std::vector<std::byte> weights(linear_weight_bytes(shape));
  fill_weights(inputs, 0, &weights);
  double sum = 0;
  for (int column = 0; column < shape.in_features; ++column) {
    const double x =
        bf16_to_float(inputs.input[static_cast<std::size_t>(token * shape.in_features + column)]);
    double weight = 0;
    if (shape.weights == LinearWeights::kBf16) {
      const auto* rows = reinterpret_cast<const std::uint16_t*>(weights.data());
      weight = bf16_to_float(rows[row * shape.in_features + column]);
    } else {
      // Chunk q + 4 h, word g % 4 for group g = 4 h + g % 4; columns 8 q to 8 q + 7.
      const std::byte* panel = &weights[static_cast<std::size_t>(
          (column / 256 * shape.weight_rows() + row) * kInt4RowBytes)];
      const int group = column % 256 / 32, in_group = column % 32;
      const int byte = (in_group / 8 + 4 * (group / 4)) * 16 + group % 4 * 4;
      const auto word = *reinterpret_cast<const std::uint32_t*>(panel + byte);
      const int bit = in_group % 8 / 2 * 4 + (in_group % 2 == 1 ? 16 : 0);
      const auto scale = *reinterpret_cast<const std::uint16_t*>(panel + 128 + 2 * group);
      weight = (static_cast<int>(word >> bit & 15) - 8) * bf16_to_float(scale);
    }
    sum += weight * x;
  }
  return sum;
}

TEST(LinearReferenceTest, SumsWhatLiesInMemory) {
  for (const char* text : {"linear/m8/n600/k40/logits/bf16", "linear/m8/n300/k296/logits/int4"}) {
    const Problem problem = Problem::parse(text);
    const LinearInputs inputs = linear_inputs(problem, 3);
    const LinearReference reference(inputs);
    for (const int output : {0, 1, 256, 257, problem.linear.out_features - 1}) {
      EXPECT_NEAR(reference.output(7, output, 0).value, sum_of(inputs, 7, output), 1e-9) << text;
    }
    EXPECT_NE(reference.output(7, 0, 0).value, reference.output(7, 1, 0).value);
    EXPECT_NE(reference.output(6, 0, 0).value, reference.output(7, 0, 0).value);
  }
}

TEST(LinearReferenceTest, GatesAndCaps) {
  const Problem geglu = Problem::parse("linear/m8/n300/k64/geglu/bf16");
  const LinearInputs inputs = linear_inputs(geglu, 5);
  const double gate = bf16_to_float(float_to_bf16(static_cast<float>(sum_of(inputs, 2, 290))));
  const double up = bf16_to_float(float_to_bf16(static_cast<float>(sum_of(inputs, 2, 590))));
  const double expected =
      gate * 0.5 * (1 + std::tanh(0.7978845608 * (gate + 0.044715 * gate * gate * gate))) * up;
  const LinearOutput output = LinearReference(inputs).output(2, 290, 0);
  EXPECT_NEAR(output.value, expected, std::abs(expected) / 128);
  EXPECT_LT(output.tolerance, std::abs(gate * up) / 8);

  const Problem logits = Problem::parse("linear/m8/n16/k64/logits/bf16");
  const LinearInputs of_logits = linear_inputs(logits, 5);
  EXPECT_NEAR(LinearReference(of_logits).output(1, 3, 1.5f).value,
              1.5 * std::tanh(sum_of(of_logits, 1, 3) / 1.5), 1e-9);
}

TEST(LinearReferenceTest, ExpertsHaveRowsAndInputsOfTheirOwn) {
  for (const char* text :
       {"experts/m8/n300/k40/store/bf16/e5x2", "experts/m8/n257/k40/store/bf16/e5x2"}) {
    const Problem problem = Problem::parse(text);
    const int outputs = problem.linear.out_features;
    const LinearInputs inputs = linear_inputs(problem, 3);
    EXPECT_EQ(inputs.num_inputs, kInputPeriod);
    const LinearReference reference(inputs);
    for (const int expert : {0, 1, 4}) {
      std::vector<std::byte> weights(linear_weight_bytes(problem.linear));
      fill_weights(inputs, 0, &weights);
      const auto* row =
          reinterpret_cast<const std::uint16_t*>(weights.data()) + 40 * (expert * outputs + 7);
      double sum = 0;
      for (int i = 0; i < 40; ++i) {
        sum += bf16_to_float(row[i]) *
               bf16_to_float(inputs.input[static_cast<std::size_t>(3 * 40 + i)]);
      }
      EXPECT_NEAR(reference.output(3 + kInputPeriod, 7, 0, expert).value, sum, 1e-9) << text;
    }
    EXPECT_NE(reference.output(3, 7, 0, 0).value, reference.output(3, 7, 0, 1).value) << text;
  }
}

TEST(LinearReferenceTest, RowsRepeatAndTheSeedFixesThem) {
  const Problem problem = Problem::parse("linear/m8/n600/k64/store/bf16");
  const LinearInputs inputs = linear_inputs(problem, 1);
  EXPECT_EQ(inputs.num_rows, kLinearPeriod);
  std::vector<std::byte> all(linear_weight_bytes(problem.linear)), part(1000);
  fill_weights(inputs, 0, &all);
  fill_weights(inputs, 33333, &part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + 33333));
  const auto row = [&](int idx) {
    return std::vector<std::byte>(all.begin() + idx * 128, all.begin() + (idx + 1) * 128);
  };
  EXPECT_EQ(row(3), row(3 + kLinearPeriod));
  EXPECT_NE(row(3), row(4));
  EXPECT_EQ(linear_inputs(problem, 1).rows, inputs.rows);
  EXPECT_NE(linear_inputs(problem, 2).rows, inputs.rows);
}

}  // namespace
}  // namespace attune
