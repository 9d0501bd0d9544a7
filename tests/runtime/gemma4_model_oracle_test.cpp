#include "tests/support/gemma4_model_oracle.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "runtime/checkpoint.h"
#include "tests/support/test_data.h"

namespace attune::oracle {
namespace {

std::vector<int> ints_of(const TensorView& tensor) { return elements<int>(tensor); }

// The tiny checkpoint, and what a public implementation computed with it in fp32.
class GoldenModel : public ::testing::Test {
 protected:
  ModelOracle model() const {
    return {checkpoint_.config, floats_of(checkpoint_.config, checkpoint_.weights)};
  }
  Rows golden(const std::string& tensor) const { return widen(floats_of(golden_.at(tensor))); }

  const Checkpoint checkpoint_ = Checkpoint::open(test_data("gemma4-tiny"));
  const Safetensors golden_{test_data("gemma4-tiny") / "golden.safetensors"};
};

constexpr double kMaxError = 1e-4;

TEST_F(GoldenModel, LogitsAndEveryHiddenStateAreThoseOfTheGoldenRun) {
  const ModelOracle::Step step = model().push(ints_of(golden_.at("input_ids")));
  const int num_layers = checkpoint_.config.num_layers();
  for (int k = 0; k <= num_layers; ++k) {
    // The last golden state is the one after the model's norm.
    const Rows& hidden = k < num_layers ? step.hidden[static_cast<std::size_t>(k)] : step.normed;
    const double error = relative_l2(hidden, golden("hidden." + std::to_string(k)));
    std::printf("hidden.%d: relative L2 %.3g\n", k, error);
    EXPECT_LT(error, kMaxError);
  }
  const double error = relative_l2(step.logits, golden("logits"));
  const double bf16_error = relative_l2(golden("logits_bf16_compute"), golden("logits"));
  std::printf("logits: relative L2 %.3g, those of the golden bf16 run %.3g\n", error, bf16_error);
  EXPECT_LT(error, kMaxError);
  EXPECT_GT(bf16_error, 10 * kMaxError);
}

TEST_F(GoldenModel, GreedyContinuationIsThatOfTheGoldenRun) {
  const std::vector<int> tokens = ints_of(golden_.at("greedy_from_40"));
  constexpr std::size_t kPrompt = 40;
  ModelOracle oracle = model();
  const std::vector<int> continuation =
      greedy(&oracle, std::span(tokens).first(kPrompt), static_cast<int>(tokens.size() - kPrompt));
  EXPECT_EQ(continuation, std::vector<int>(tokens.begin() + kPrompt, tokens.end()));
}

}  // namespace
}  // namespace attune::oracle
