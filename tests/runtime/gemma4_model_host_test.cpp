// The whole tiny model on the host device.
#include <gtest/gtest.h>

#include "jit/host_device.h"
#include "tests/runtime/gemma4_bench.h"
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

}  // namespace
}  // namespace attune
