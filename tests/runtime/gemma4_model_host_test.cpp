// The whole tiny model on the host device.
#include <gtest/gtest.h>

#include "jit/host_device.h"
#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/gemma4_kind_cases.h"
#include "tests/runtime/gemma4_model_cases.h"

namespace attune {
namespace {

Gemma4Bench bench() {
  Options options;
  options.device = "host";
  options.cache_path = gemma4_test_cache();
  return Gemma4Bench(options, open_host_device({}));
}

TEST(Gemma4ModelHost, GivesTheGoldenLogits) {
  Gemma4Bench on = bench();
  expect_golden_logits(on.engine);
}

TEST(Gemma4ModelHost, VerifyGivesTheBitsOfDecode) {
  Gemma4Bench on = bench();
  expect_verify_is_decode(on.engine, 24);
}

TEST(Gemma4ModelHost, TapsAreTheStreamsAndChangeNothing) {
  Gemma4Bench on = bench();
  expect_taps(on.engine);
}

TEST(Gemma4ModelHost, PerLayerInputsAndSharedCachesAreTheirFormulas) {
  Gemma4Bench on = bench();
  expect_kind_logits(on.engine, KindModel(served_config(tiny_dense_config())), 40);
  expect_kind_logits(on.engine, KindModel(served_config(tiny_per_layer_config())), 40);
}

TEST(Gemma4ModelHost, PerLayerInputsAreLossless) {
  Gemma4Bench on = bench();
  const KindModel kind(served_config(tiny_per_layer_config()));
  expect_kind_lossless(on.engine, kind, LinearWeights::kBf16, 8);
  expect_kind_lossless(on.engine, kind, LinearWeights::kInt4, 5);
}

TEST(Gemma4ModelHost, ExpertsAreTheirFormulas) {
  Gemma4Bench on = bench();
  expect_kind_logits(on.engine, KindModel(served_config(tiny_experts_config()), kDecidedSeed),
                     kDecidedTokens);
}

TEST(Gemma4ModelHost, ExpertsAreLossless) {
  Gemma4Bench on = bench();
  const KindModel kind(served_config(tiny_experts_config()), kDecidedSeed);
  expect_kind_lossless(on.engine, kind, LinearWeights::kBf16, 6);
  expect_kind_lossless(on.engine, kind, LinearWeights::kInt4, 4);
}

}  // namespace
}  // namespace attune
