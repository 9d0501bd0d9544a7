// libcublasLt: how it is found, and what it is asked for, by a fake one that computes on the CPU.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/error.h"
#include "jit/host_device.h"
#include "tests/support/fake_cublaslt_device.h"
#include "tests/support/model_run.h"
#include "tests/support/temporary_folder.h"

namespace attune {
namespace {

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(CublasLtLibrary, IsFoundInAFolder) {
  const CublasLtLibrary library = open_cublaslt({fake_cublaslt_folder()});
  EXPECT_EQ(library.version, "12.3.4");
  EXPECT_TRUE(library.path.ends_with("libcublasLt.so.13")) << library.path;
  EXPECT_EQ(open_cublaslt({library.path}).path, library.path);
}

TEST(CublasLtLibrary, SaysWhereItLookedAndWhatToInstall) {
  const TemporaryFolder folder;
  const std::string message = message_of([&] { open_cublaslt({folder.path()}); });
  EXPECT_TRUE(message.starts_with("no cuBLASLt library at the given place: looked in ")) << message;
  EXPECT_TRUE(contains(message, (folder.path() / "nvidia/cublas/lib").string())) << message;
  EXPECT_TRUE(contains(message, "pip install nvidia-cublas")) << message;
  EXPECT_TRUE(contains(message, "ATTUNE_CUBLASLT")) << message;
}

TEST(CublasLtLibrary, NamesWhatAnotherLibraryLacks) {
  const std::string message = message_of([] { open_cublaslt({"libm.so.6"}); });
  EXPECT_TRUE(contains(message, "missing=cublasLtGetVersion")) << message;
}

class CublasLtGemmTest : public testing::Test {
 protected:
  CublasLtGemmTest() { state = {}; }
  ~CublasLtGemmTest() override { EXPECT_EQ(state.objects, 0); }

  static GemmShape shape_of(const LinearProblem& problem) {
    return {problem.num_tokens, problem.shape.out_features, problem.shape.in_features};
  }
  // Why a product is refused, which writes nothing.
  std::string refusal(Gemm& gemm, const LinearProblem& problem) {
    const DeviceArray<std::uint16_t> weights(device, problem.weights);
    const DeviceArray<std::uint16_t> input(device, problem.input);
    const DeviceArray<std::uint16_t> out(
        device, std::size_t(problem.num_tokens) * problem.shape.out_features, kModelPoison);
    const auto refusal =
        gemm.run(shape_of(problem), {weights.ptr(), input.ptr(), out.ptr()}, nullptr);
    for (const std::uint16_t value : out.read()) EXPECT_EQ(value, kModelPoison);
    return refusal ? refusal->reason : "none";
  }
  std::vector<std::uint16_t> run(Gemm& gemm, const LinearProblem& problem) {
    const DeviceArray<std::uint16_t> weights(device, problem.weights);
    const DeviceArray<std::uint16_t> input(device, problem.input);
    const std::size_t used = std::size_t(problem.num_tokens) * problem.shape.out_features;
    const DeviceArray<std::uint16_t> out(device, used + 8, kModelPoison);
    const auto refusal =
        gemm.run(shape_of(problem), {weights.ptr(), input.ptr(), out.ptr()}, nullptr);
    EXPECT_FALSE(refusal) << refusal->reason;
    std::vector<std::uint16_t> values = out.read();
    EXPECT_EQ(values.back(), kModelPoison);
    values.resize(used);
    return values;
  }

  FakeCublasLtDevice device{open_host_device()};
  FakeCublasLtState& state = fake_cublaslt_state();
};

TEST_F(CublasLtGemmTest, GivesTheProductOfRows) {
  const auto gemm = device.open_gemm({});
  EXPECT_TRUE(gemm->name().starts_with("cuBLASLt 12.3.4 in ")) << gemm->name();
  for (const LinearShape& shape : {LinearShape{24, 40}, LinearShape{8, 136}}) {
    const LinearProblem problem(shape, 19, 3);
    expect_right(problem, run(*gemm, problem));
  }
}

TEST_F(CublasLtGemmTest, ChoosesOnceForABlockOfTokens) {
  const auto gemm = device.open_gemm({});
  for (const int num_tokens : {19, 64, 1, 33}) run(*gemm, LinearProblem({24, 40}, num_tokens, 3));
  EXPECT_EQ(state.choices, 1);
  run(*gemm, LinearProblem({24, 40}, 65, 3));
  run(*gemm, LinearProblem({40, 24}, 19, 3));
  EXPECT_EQ(state.choices, 3);
  EXPECT_EQ(state.products, 6);
}

TEST_F(CublasLtGemmTest, WhatIsPreparedAsksAndMakesNothingMore) {
  const auto gemm = device.open_gemm({});
  for (const int num_tokens : {64, 100}) {
    EXPECT_FALSE(gemm->prepare({num_tokens, 24, 40}));
  }
  EXPECT_EQ(state.choices, 2);
  EXPECT_EQ(state.products, 0);
  const int made = state.made;
  for (const int num_tokens : {17, 40, 64, 65, 128, 17}) {
    const LinearProblem problem({24, 40}, num_tokens, 3);
    expect_right(problem, run(*gemm, problem));
  }
  EXPECT_EQ(state.choices, 2);
  EXPECT_EQ(state.made, made);
}

// Then each number of tokens has an algorithm of its own.
TEST_F(CublasLtGemmTest, AnAlgorithmThatIsRefusedForFewerTokensIsChosenForThem) {
  const auto gemm = device.open_gemm({});
  state.wants_exact_algorithms = true;
  const LinearProblem problem({24, 40}, 19, 3), whole({24, 40}, 64, 4);
  for (int i = 0; i < 3; ++i) expect_right(problem, run(*gemm, problem));
  EXPECT_EQ(state.choices, 2);
  EXPECT_EQ(state.products, 4);
  expect_right(whole, run(*gemm, whole));
  EXPECT_EQ(state.choices, 2);
}

TEST_F(CublasLtGemmTest, SaysWhatTheLibraryRefused) {
  const LinearProblem problem({24, 40}, 19, 3), other({40, 24}, 19, 3);
  {
    const auto gemm = device.open_gemm({});
    state.has_no_algorithm = true;
    const auto refused = gemm->prepare({19, 24, 40});
    ASSERT_TRUE(refused);
    EXPECT_TRUE(contains(refused->reason, "num_tokens=64 out_features=24 in_features=40"))
        << refused->reason;
    state.has_no_algorithm = false;
    EXPECT_EQ(refusal(*gemm, problem), refused->reason);  // it is not asked again
    EXPECT_EQ(state.choices, 1);
    EXPECT_EQ(state.products, 0);
    state.status_of_products = 13;
    const std::string reason = refusal(*gemm, other);
    EXPECT_TRUE(contains(reason, "call=cublasLtMatmul status=13 (CUBLAS_STATUS_OTHER)")) << reason;
    EXPECT_TRUE(contains(reason, "num_tokens=19 out_features=40")) << reason;
    state.status_of_products = 0;
    EXPECT_EQ(refusal(*gemm, other), reason) << "or the same product would have other bits";
    EXPECT_EQ(state.products, 1);
    const LinearProblem third({48, 24}, 19, 3);
    state.status_of_products = 15;  // of the block's algorithm, then of its own
    EXPECT_TRUE(contains(refusal(*gemm, third), "status=15"));
    state.status_of_products = 0;
    EXPECT_TRUE(contains(refusal(*gemm, third), "status=15"));  // nor is it tried again
    EXPECT_EQ(state.products, 3);
  }
  state.refuses_to_start = true;
  const std::string message = message_of([&] { device.open_gemm({}); });
  EXPECT_TRUE(contains(message, "CUBLAS_STATUS_NOT_INITIALIZED")) << message;
}

}  // namespace
}  // namespace attune
