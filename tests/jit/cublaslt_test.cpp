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

  std::vector<std::uint16_t> run(Gemm& gemm, const LinearProblem& problem) {
    const DeviceArray<std::uint16_t> weights(device, problem.weights);
    const DeviceArray<std::uint16_t> input(device, problem.input);
    const std::size_t used = std::size_t(problem.num_tokens) * problem.shape.out_features;
    const DeviceArray<std::uint16_t> out(device, used + 8, kModelPoison);
    gemm.run({problem.num_tokens, problem.shape.out_features, problem.shape.in_features},
             {weights.ptr(), input.ptr(), out.ptr()}, nullptr);
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

TEST_F(CublasLtGemmTest, ChoosesOnceForAShape) {
  const auto gemm = device.open_gemm({});
  const LinearProblem one({24, 40}, 19, 3), other({24, 40}, 20, 3);
  for (int i = 0; i < 3; ++i) run(*gemm, one);
  EXPECT_EQ(state.choices, 1);
  run(*gemm, other);
  run(*gemm, one);
  EXPECT_EQ(state.choices, 2);
  EXPECT_EQ(state.products, 5);
}

TEST_F(CublasLtGemmTest, SaysWhatTheLibraryRefused) {
  const LinearProblem problem({24, 40}, 19, 3);
  {
    const auto gemm = device.open_gemm({});
    state.has_no_algorithm = true;
    std::string message = message_of([&] { run(*gemm, problem); });
    EXPECT_TRUE(contains(message, "num_tokens=19 out_features=24 in_features=40")) << message;
    state.has_no_algorithm = false;
    state.status_of_products = 13;
    message = message_of([&] { run(*gemm, problem); });
    EXPECT_TRUE(contains(message, "call=cublasLtMatmul status=13 (CUBLAS_STATUS_OTHER)"))
        << message;
  }
  state.refuses_to_start = true;
  const std::string message = message_of([&] { device.open_gemm({}); });
  EXPECT_TRUE(contains(message, "CUBLAS_STATUS_NOT_INITIALIZED")) << message;
}

}  // namespace
}  // namespace attune
