// Prefills on the host device, whose products come from a fake libcublasLt.
#include <gtest/gtest.h>

#include "jit/host_device.h"
#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/generate_cases.h"
#include "tests/runtime/prefill_cases.h"
#include "tests/support/fake_cublaslt_device.h"
#include "tests/support/host_kernels.h"

namespace attune {
namespace {

class PrefillHost : public testing::Test {
 protected:
  PrefillHost() { state_ = {}; }
  ~PrefillHost() override { EXPECT_EQ(state_.objects, 0); }
  static Gemma4Bench bench(const HostTarget& target = {}) {
    Options options;
    options.device = "host";
    options.cache_path = gemma4_test_cache();
    return Gemma4Bench(options,
                       std::make_unique<FakeCublasLtDevice>(open_host_device({.target = target})));
  }
  FakeCublasLtState& state_ = fake_cublaslt_state();
};

TEST_F(PrefillHost, LayersGiveTheProductRoundedOnce) {
  Gemma4Bench on = bench(checked_target());
  const auto compiler = open_compiler({}, on.engine.device().info().arch);
  expect_right_prefills(on.engine, *compiler);
  EXPECT_EQ(state_.products, 3);
  expect_right_packed_prefills(on.engine, *compiler);
  EXPECT_EQ(state_.products, 5);
}

// As many tokens as the kernels take at once, and of packed weights as they are faster for; and more than
// there is room for.
TEST_F(PrefillHost, FewTokensAreLeftToTheKernels) {
  Gemma4Bench on = bench();
  const auto compiler = open_compiler({}, on.engine.device().info().arch);
  for (const int num_tokens : {16, 41}) {
    const LinearProblem problem({8, 64, LinearEpilogue::kGeglu}, num_tokens, 5);
    expect_right(problem, run_layers(on.engine, *compiler, problem, 40));
  }
  LinearProblem packed({8, 64}, 128, 6);
  packed.pack();
  expect_right(packed, run_layers(on.engine, *compiler, packed, 200));
  EXPECT_EQ(state_.products, 0);
}

TEST_F(PrefillHost, HasRoomForLayersThatItTakesAlone) {
  Gemma4Bench on = bench();
  const auto compiler = open_compiler({}, on.engine.device().info().arch);
  Device& device = on.engine.device();
  const auto load = [&](const Source& source) {
    return std::make_shared<const LoadedModule>(
        LoadedModule{nullptr, device.load(compiler->compile(source, device.info().arch))});
  };
  const std::array shapes = {LinearShape{72, 264}, LinearShape{4096, 264, LinearEpilogue::kLogits}};
  const auto bytes = [&](int max_tokens) {
    LinearLayers layers(on.engine, shapes, LinearWeights::kInt4);
    layers.prefill_by(device.open_gemm(test_gemm_search()), load, shapes, max_tokens);
    return layers.prefill_bytes();
  };
  const std::size_t workspace = device.open_gemm(test_gemm_search())->workspace_bytes();
  EXPECT_EQ(bytes(200), workspace + 2 * 72 * 264);
  EXPECT_EQ(bytes(100), workspace);
}

TEST_F(PrefillHost, GivesTheGoldenLogits) {
  Gemma4Bench on = bench();
  expect_golden_prefills(on.engine);
  EXPECT_GT(state_.products, 0);
}

TEST_F(PrefillHost, GenerationIsLosslessBehindIt) {
  Gemma4Bench on = bench();
  expect_lossless(on.engine, 3, {3}, {21});
  EXPECT_GT(state_.products, 0);
}

TEST_F(PrefillHost, OffMeansTheKernelsAlone) {
  Options options;
  options.device = "host";
  options.cublaslt_path = "off";
  options.cache_path = gemma4_test_cache();
  Gemma4Bench on(options, std::make_unique<FakeCublasLtDevice>(open_host_device({})));
  const Gemma4Model model = TinyModel().on(on.engine);
  EXPECT_NE(model.explain().find("linear layers of prefill: linear.cuh"), std::string::npos);
  Gemma4Bench with = bench();
  EXPECT_NE(TinyModel().on(with.engine).explain().find("linear layers of prefill: cuBLASLt 12.3.4"),
            std::string::npos);
}

// The layers whose products a library has no algorithm for, or refuses when it runs them, are multiplied
// by the kernels, with one warning a layer.
TEST_F(PrefillHost, ARefusalIsLeftToTheKernels) {
  Gemma4Bench on = bench();
  const auto compiler = open_compiler({}, on.engine.device().info().arch);
  std::vector<std::string> warnings;
  const LinearProblem small({40, 96, LinearEpilogue::kGeglu}, 37, 5), large({72, 136}, 37, 6);
  const auto layers_of = [&](const LinearProblem& problem) {
    return make_layers(on.engine, *compiler, problem.shape, 40,
                       [&](const std::string& message) { warnings.push_back(message); });
  };
  state_.has_no_algorithm = true;
  const auto without = layers_of(large);
  EXPECT_EQ(state_.choices, 1);
  EXPECT_EQ(without->prefill_text(37), "linear.cuh, 16 tokens a pass");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(warnings[0].starts_with(
      "prefills take 16 tokens a pass over a layer's weights: cuBLASLt has no algorithm: "
      "num_tokens=64 out_features=72 in_features=136"))
      << warnings[0];
  state_.has_no_algorithm = false;
  for (int i = 0; i < 2; ++i) expect_right(large, run_layers(on.engine.device(), *without, large));
  EXPECT_EQ(state_.products, 0);
  EXPECT_EQ(warnings.size(), 1u);

  for (const int status : {13, 15}) {
    const auto layers = layers_of(small);
    EXPECT_TRUE(layers->prefill_text(37).starts_with("cuBLASLt 12.3.4 in "));
    EXPECT_EQ(layers->prefill_text(16), "linear.cuh, 16 tokens a pass");
    state_.status_of_products = status;
    warnings.clear();
    for (int i = 0; i < 2; ++i) expect_right(small, run_layers(on.engine.device(), *layers, small));
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("num_tokens=37 out_features=80 in_features=96"), std::string::npos)
        << warnings[0];
    EXPECT_EQ(layers->prefill_text(37), "linear.cuh, 16 tokens a pass");
    state_.status_of_products = 0;
  }
}

// A model whose library refuses some layers serves all of them, and says so.
TEST_F(PrefillHost, AModelServesWhatItsLibraryRefuses) {
  std::vector<std::string> warnings;
  Options options;
  options.device = "host";
  options.cache_path = gemma4_test_cache();
  options.log = [&](const std::string& message) { warnings.push_back(message); };
  Gemma4Bench on(options, std::make_unique<FakeCublasLtDevice>(open_host_device({})));
  state_.has_no_algorithm_for_few = true;
  {
    const Gemma4Model model = TinyModel().on(on.engine);
    const std::string by = model.prefill_text(40);
    EXPECT_TRUE(by.starts_with("cuBLASLt 12.3.4 in ")) << by;
    EXPECT_NE(by.find(", which refused "), std::string::npos) << by;
  }
  std::erase_if(warnings, [](const std::string& one) {
    return one.find("prefills take 16 tokens a pass over a layer's weights") == std::string::npos;
  });
  EXPECT_FALSE(warnings.empty());
  expect_golden_prefills(on.engine);
  EXPECT_GT(state_.products, 0);
}

// What a prompt of any length needs of the library has been asked for when the model is made.
TEST_F(PrefillHost, ServingAsksTheLibraryForNothing) {
  Gemma4Bench on = bench();
  Gemma4Model model = TinyModel().on(on.engine);
  on.engine.seal();
  const int choices = state_.choices, made = state_.made;
  EXPECT_GT(choices, 0);
  std::size_t num_allocations = 0;
  on.watched->on_call = [&](std::string_view call) { num_allocations += call == "allocate"; };
  for (const int length : {17, 40, 23}) {
    Gemma4Session session = model.open_session();
    model.set_tokens(tiny_prompt(length), nullptr);
    model.prefill(session, length, nullptr);
    session.commit(length, nullptr);
  }
  on.watched->on_call = nullptr;
  EXPECT_GT(state_.products, 0);
  EXPECT_EQ(state_.choices, choices);
  EXPECT_EQ(state_.made, made);
  EXPECT_EQ(num_allocations, 0u);
}

// A library that is missing costs speed, one warning an engine, and nothing else; one that was named has to
// be there.
TEST_F(PrefillHost, AMissingLibraryIsToldOnceAndANamedOneIsAnError) {
  class WithoutLibrary : public ForwardingDevice {
   public:
    using ForwardingDevice::ForwardingDevice;
    std::unique_ptr<Gemm> open_gemm(const GemmSearch& search) override {
      if (!search.cublaslt_path.empty()) open_cublaslt(search);
      throw DeviceUnavailable("no cuBLASLt library found", "looked in nowhere", "install it");
    }
  };
  std::vector<std::string> warnings;
  Options options;
  options.device = "host";
  options.cache_path = gemma4_test_cache();
  options.log = [&](const std::string& message) { warnings.push_back(message); };
  Gemma4Bench on(options, std::make_unique<WithoutLibrary>(open_host_device({})));
  for (int i = 0; i < 2; ++i) TinyModel().on(on.engine);
  std::erase_if(warnings,
                [](const std::string& text) { return text.find("cuBLASLt") == std::string::npos; });
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(
      warnings[0].starts_with("prefills take 16 tokens a pass over the weights: no cuBLASLt "))
      << warnings[0];

  options.cublaslt_path = "/nowhere/libcublasLt.so.13";
  Gemma4Bench named(options, std::make_unique<WithoutLibrary>(open_host_device({})));
  try {
    TinyModel().on(named.engine);
    ADD_FAILURE() << "made";
  } catch (const DeviceUnavailable& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("no cuBLASLt library at the given place: looked in "))
        << message;
    EXPECT_NE(message.find("/nowhere/libcublasLt.so.13"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace attune
