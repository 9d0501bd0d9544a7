#include "tuner/verify.h"

#include <gtest/gtest.h>

#include "jit/source.h"
#include "templates/split_plan.h"
#include "tests/tuner/fake_attention.h"

namespace attune {
namespace {

using Tamper = std::function<void(const Variant&, const AttentionParams&)>;

const Problem kProblem = Problem::parse("verify/b1/q3/kv1-256/h2x1/d64/w50/contiguous/bf16");
const Candidate kCandidate{"splitkv", {16, 32, 2, 4}, 3};

// Row 0 of a sequence's token.
std::uint16_t* out_row(const AttentionParams& p, int batch_idx, int token_idx) {
  return static_cast<std::uint16_t*>(p.out) + batch_idx * p.out_batch_stride +
         token_idx * p.out_token_stride;
}

class VerifyTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { cases_ = new std::vector<VerifyCase>(verify_cases(kProblem, 1)); }
  static void TearDownTestSuite() { delete cases_; }

  // Verifies a kernel that is right but for what `tamper` does.
  std::variant<Admission, Rejection> run(Tamper tamper = {}) {
    serve_attention(
        device_, [](const Variant&, const AttentionParams&) { return 1.0; }, std::move(tamper));
    return verify(device_, load(kProblem, kCandidate), kCandidate, *cases_);
  }
  AttentionKernels load(const Problem& problem, const Candidate& candidate) {
    const Variant variant = candidate.variant(problem);
    Binary binary;
    FakeCompiles().run(one_by_one({{0, attention_source(variant), "sm_90a"}}),
                       [&](CompileOutcome outcome) { binary = *outcome.binary; }, {});
    return load_attention(device_, binary, variant, plan_launch(problem, candidate));
  }
  void expect_rejected(RejectReason reason, const std::string& detail, Tamper tamper) {
    const auto outcome = run(std::move(tamper));
    ASSERT_TRUE(std::holds_alternative<Rejection>(outcome));
    const Rejection& rejection = std::get<Rejection>(outcome);
    EXPECT_EQ(rejection.reason, reason) << rejection.detail;
    EXPECT_NE(rejection.detail.find(detail), std::string::npos) << rejection.detail;
  }

  FakeDevice device_{small_l2_device_info()};
  static std::vector<VerifyCase>* cases_;
};
std::vector<VerifyCase>* VerifyTest::cases_ = nullptr;

TEST_F(VerifyTest, AdmitsARightKernelWithItsErrors) {
  const auto outcome = run();
  ASSERT_TRUE(std::holds_alternative<Admission>(outcome)) << std::get<Rejection>(outcome).detail;
  const Admission& admission = std::get<Admission>(outcome);
  EXPECT_EQ(admission.reference, kReferenceName);
  std::size_t sequences = 0;
  for (const VerifyCase& one : *cases_) sequences += one.inputs.kv_len.size();
  EXPECT_EQ(admission.num_cases, static_cast<int>(sequences));
  EXPECT_GT(admission.relative_l2, 1e-4);  // the rounding of the output
  EXPECT_LT(admission.relative_l2, kMaxRelativeL2);
  EXPECT_GT(admission.max_abs_error, 0);
  EXPECT_FALSE(admission.created_at.empty());
  EXPECT_EQ(device_.live_bytes(), 0u);
}

TEST_F(VerifyTest, RejectsAKernelThatWritesHalfOfTheRows) {
  expect_rejected(RejectReason::kWrongResult, "nan", [](const Variant&, const AttentionParams& p) {
    for (int b = 0; b < p.batch; ++b) std::fill_n(out_row(p, b, 1), 64, 0xffff);
  });
}

TEST_F(VerifyTest, RejectsOneWrongNumber) {
  expect_rejected(RejectReason::kWrongResult, "relative_l2",
                  [](const Variant&, const AttentionParams& p) {
                    out_row(p, p.batch - 1, 2)[17] ^= 0x8000;  // the sign
                    out_row(p, p.batch - 1, 2)[17] |= 0x3f80;  // of a number of size
                  });
}

TEST_F(VerifyTest, RejectsAnythingButZeroWhereNothingIsSeen) {
  expect_rejected(RejectReason::kWrongResult, "kv_len=0",
                  [](const Variant&, const AttentionParams& p) {
                    if (p.kv_len[0] + p.kv_len_add == 0)
                      out_row(p, 0, 0)[3] = 1;  // the least number above it
                  });
}

TEST_F(VerifyTest, RejectsWritesBehindTheOutput) {
  expect_rejected(RejectReason::kOutOfBounds, "of out",
                  [](const Variant&, const AttentionParams& p) {
                    static_cast<std::uint16_t*>(p.out)[p.batch * p.out_batch_stride] = 0;
                  });
}

TEST_F(VerifyTest, RejectsWritesBetweenTheRows) {
  expect_rejected(RejectReason::kOutOfBounds, "between the rows",
                  [](const Variant&, const AttentionParams& p) { out_row(p, 1, 0)[64] = 0; });
  expect_rejected(RejectReason::kOutOfBounds, "between the rows",
                  [](const Variant&, const AttentionParams& p) {
                    out_row(p, 1, 0)[2 * p.out_head_stride] = 0;
                  });
  expect_rejected(RejectReason::kOutOfBounds, "between the rows",
                  [](const Variant&, const AttentionParams& p) { out_row(p, 1, 0)[-1] = 0; });
}

TEST_F(VerifyTest, RejectsWritesAroundTheLse) {
  expect_rejected(RejectReason::kOutOfBounds, "byte -4 of lse",
                  [](const Variant&, const AttentionParams& p) {
                    if (p.lse != nullptr) p.lse[-1] = 0;
                  });
}

TEST_F(VerifyTest, RejectsWritesBehindTheWorkspace) {
  expect_rejected(RejectReason::kOutOfBounds, "of workspace",
                  [](const Variant& variant, const AttentionParams& p) {
                    const Candidate candidate{"splitkv", kCandidate.config, p.split_cap};
                    const LaunchPlan plan = plan_launch(problem_of(variant, p), candidate);
                    reinterpret_cast<char*>(p.o_partial)[plan.workspace_bytes()] = 0;
                  });
}

TEST_F(VerifyTest, RejectsAMissingOrWrongLse) {
  expect_rejected(RejectReason::kWrongResult, "lse=", [](const Variant&, const AttentionParams& p) {
    if (p.lse != nullptr) p.lse[p.batch * 3 * 2 - 1] = std::bit_cast<float>(0xffffffffu);
  });
  expect_rejected(RejectReason::kWrongResult, "lse=", [](const Variant&, const AttentionParams& p) {
    if (p.lse != nullptr) p.lse[p.batch * 3 * 2 - 1] *= 1.01f;
  });
}

TEST_F(VerifyTest, RejectsAKernelThatNeedsTheLse) {
  expect_rejected(RejectReason::kWrongResult, "without lse",
                  [](const Variant&, const AttentionParams& p) {
                    if (p.lse == nullptr) out_row(p, 0, 0)[0] ^= 1;
                  });
}

TEST_F(VerifyTest, RejectsOtherBitsInASecondRun) {
  expect_rejected(RejectReason::kWrongResult, "a second run gave other bits",
                  [run = 0](const Variant&, const AttentionParams& p) mutable {
                    if (run++ == 1) out_row(p, p.batch - 1, 2)[0] ^= 1;
                  });
}

TEST_F(VerifyTest, RejectsAnErrorThatOnlyTheAccuracyCaseShows) {
  expect_rejected(RejectReason::kWrongResult, "accuracy",
                  [](const Variant&, const AttentionParams& p) {
                    if (p.kv_len[0] + p.kv_len_add < 4000) return;
                    for (int t = 0; t < p.seqlen_q; ++t) {
                      for (int d = 0; d < 128; ++d) {  // 0.5% off, every row
                        std::uint16_t& value = out_row(p, 0, t)[d];
                        value = float_to_bf16(bf16_to_float(value) * 1.006f);
                      }
                    }
                  });
}

// A kernel that loses track once its pipeline is refilled, with so many splits that none of the
// cases refills it.
TEST_F(VerifyTest, RejectsAKernelThatIsWrongInLongSplitsOnly) {
  const Problem problem = Problem::parse("decode/b1/q1/kv1-131072/h1x1/d64/contiguous/bf16");
  const Candidate candidate{"splitkv", kCandidate.config, 132};
  serve_attention(
      device_, [](const Variant&, const AttentionParams&) { return 1.0; },
      [](const Variant& variant, const AttentionParams& p) {
        const KernelConfig& config = variant.config;
        const int longest = *std::max_element(p.kv_len, p.kv_len + p.batch) + p.kv_len_add;
        const SplitPlan plan = plan_splits({0, longest}, config.block_n, p.split_cap);
        if (plan.keys_per_split > 2 * config.num_stages * config.block_n) out_row(p, 0, 0)[0] = 0;
      });
  const std::vector<VerifyCase> cases = verify_cases(problem, 1);
  const AttentionKernels kernels = load(problem, candidate);
  const auto outcome = verify(device_, kernels, candidate, cases);
  ASSERT_TRUE(std::holds_alternative<Rejection>(outcome));
  EXPECT_NE(std::get<Rejection>(outcome).detail.find("accuracy"), std::string::npos);
}

TEST_F(VerifyTest, RejectsAFailedLaunch) {
  expect_rejected(RejectReason::kLaunch, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
                  [](const Variant&, const AttentionParams&) {
                    throw CudaError("cannot launch", 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES");
                  });
}

TEST_F(VerifyTest, FailsAKernelThatIgnoresOrMixesUpAStride) {
  using Break = void (*)(AttentionParams*);
  const Break breaks[] = {
      [](AttentionParams* p) { p->q_token_stride = 2 * p->q_head_stride; },  // as if it was dense
      [](AttentionParams* p) { p->q_head_stride = 64; },
      [](AttentionParams* p) { p->out_head_stride = 64; },
      [](AttentionParams* p) { p->v_token_stride = p->k_token_stride; },
      [](AttentionParams* p) { p->v_batch_stride = p->k_batch_stride; },
  };
  const AttentionKernels kernels = load(kProblem, kCandidate);
  for (const Break& damage : breaks) {
    serve_attention(device_, [](const Variant&, const AttentionParams&) { return 1.0; });
    const auto serve = device_.on_launch;
    device_.on_launch = [&](const Kernel& kernel, const KernelLaunch& shape, const void* params) {
      AttentionParams p = *static_cast<const AttentionParams*>(params);
      damage(&p);
      serve(kernel, shape, &p);
    };
    EXPECT_TRUE(std::holds_alternative<Rejection>(verify(device_, kernels, kCandidate, *cases_)))
        << &damage - breaks;
  }
}

}  // namespace
}  // namespace attune
