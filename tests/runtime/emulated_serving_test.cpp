// Serves on the fake device with a kernel that is the formula over the launch's own parameters, so
// that strides, ring and lengths are right from the caller's arguments to the kernel's.
#include <cmath>

#include <gtest/gtest.h>

#include "templates/split_plan.h"
#include "tests/runtime/growing_step.h"
#include "tests/runtime/serving_fixture.h"
#include "tuner/verify.h"

namespace attune {
namespace {

const std::uint16_t* element(const void* base, int64 offset) {
  return static_cast<const std::uint16_t*>(base) + offset;
}

// One query row against the keys it sees.
void emulate_row(const AttentionParams& p, int head_dim, int b, int token, int head) {
  const KeyRange keys = visible_keys(p.kv_len[b], p.seqlen_q, token, token, p.window, p.causal);
  const int kv_head = head / p.group_size;
  const auto* q =
      element(p.q, b * p.q_batch_stride + token * p.q_token_stride + head * p.q_head_stride);
  std::vector<double> out(head_dim, 0.0);
  double maximum = -INFINITY;
  double sum = 0;
  for (int position = keys.begin; position < keys.end; ++position) {
    const int row = p.ring_capacity > 0 ? position % p.ring_capacity : position;
    const auto* k =
        element(p.k, b * p.k_batch_stride + row * p.k_token_stride + kv_head * p.k_head_stride);
    const auto* v =
        element(p.v, b * p.v_batch_stride + row * p.v_token_stride + kv_head * p.v_head_stride);
    double score = 0;
    for (int d = 0; d < head_dim; ++d) score += bf16_to_float(q[d]) * bf16_to_float(k[d]);
    score *= p.sm_scale;
    if (p.softcap > 0) score = p.softcap * std::tanh(score / p.softcap);
    const double highest = std::max(maximum, score);
    const double rescale = std::exp(maximum - highest);
    const double weight = std::exp(score - highest);
    maximum = highest;
    sum = sum * rescale + weight;
    for (int d = 0; d < head_dim; ++d) out[d] = out[d] * rescale + weight * bf16_to_float(v[d]);
  }
  auto* to = static_cast<std::uint16_t*>(p.out) + b * p.out_batch_stride +
             token * p.out_token_stride + head * p.out_head_stride;
  for (int d = 0; d < head_dim; ++d) {
    to[d] = float_to_bf16(sum > 0 ? static_cast<float>(out[d] / sum) : 0.0f);
  }
  const int num_q_heads = p.num_kv_heads * p.group_size;
  if (p.lse != nullptr) {
    p.lse[(b * p.seqlen_q + token) * num_q_heads + head] =
        sum > 0 ? static_cast<float>(maximum + std::log(sum)) : -INFINITY;
  }
}

void emulate(const AttentionParams& p, int head_dim) {
  for (int b = 0; b < p.batch; ++b) {
    for (int token = 0; token < p.seqlen_q; ++token) {
      for (int head = 0; head < p.num_kv_heads * p.group_size; ++head) {
        emulate_row(p, head_dim, b, token, head);
      }
    }
  }
}

constexpr const char* kFourWarps = "splitkv/m16n32s1w4/x5";

struct Case {
  const char* problem;
  int capacity;
};

class EmulatedServingTest : public ServingTest, public ::testing::WithParamInterface<Case> {};

TEST_P(EmulatedServingTest, OneCapturedLaunchIsRightAtEveryLength) {
  const int head_dim = Problem::parse(GetParam().problem).head_dim;
  store(GetParam().problem, kFourWarps);
  auto fake = device();
  fake->on_launch = [&](const Kernel& kernel, const KernelLaunch&, const void* params) {
    if (FakeDevice::symbol_of(kernel).starts_with("combine")) return;  // all is done already
    emulate(*static_cast<const AttentionParams*>(params), head_dim);
  };
  Engine serving(options, std::move(fake));
  const Attention attention = serving.prepare(GetParam().problem);
  ASSERT_EQ(attention.served(), Served::kExact);
  Device& gpu = serving.device();
  GrowingStep step(gpu, attention, GetParam().capacity);
  const Stream stream = gpu.create_stream();
  const Graph graph =
      gpu.capture(stream.get(), [&] { attention.launch(step.args(), stream.get()); });
  for (const int kv_len :
       {1, 2, 3, 4, 15, 16, 17, 31, 63, 64, 65, 119, 120, 127, 128, 129, 131, 132, 200}) {
    step.grow_to(kv_len, stream.get());
    gpu.launch(graph, stream.get());
    EXPECT_LE(step.error(stream.get()), kMaxRelativeL2) << "kv_len=" << kv_len;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, EmulatedServingTest,
    ::testing::Values(Case{"decode/b1/q1/kv1-256/h8x2/d64/contiguous/bf16", 200},
                      Case{"decode/b3/q1/kv1-256/h6x2/d128/w120/ring/bf16", 128},
                      Case{"verify/b2/q4/kv1-256/h4x2/d64/w128/softcap/ring/bf16", 131},
                      Case{"verify/b2/q4/kv1-256/h4x1/d64/contiguous/bf16", 200},
                      Case{"verify/b1/q4/kv1-256/h4x1/d64/full/contiguous/bf16", 200}));

// The judge has to notice numbers that were never written.
using JudgeTest = ServingTest;
TEST_F(JudgeTest, AnUnwrittenResultIsAnInfiniteError) {
  constexpr const char* kProblem = "decode/b1/q1/kv1-256/h8x2/d64/contiguous/bf16";
  store(kProblem, kFourWarps);
  auto serving = engine();  // its kernels do nothing
  const Attention attention = serving->prepare(kProblem);
  GrowingStep step(serving->device(), attention, 64);
  step.grow_to(50, nullptr);
  attention.launch(step.args(), nullptr);
  EXPECT_TRUE(std::isinf(step.output_error(nullptr)));
}

}  // namespace
}  // namespace attune
