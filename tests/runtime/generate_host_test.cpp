// Generation and the EAGLE-3 head on the host device: the same bodies as on a GPU, smaller.
#include <gtest/gtest.h>

#include "jit/host_device.h"
#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/generate_cases.h"

namespace attune {
namespace {

class GenerateHost : public ::testing::Test {
 protected:
  static Options options() {
    Options options;
    options.device = "host";
    options.cache_path = gemma4_test_cache();
    return options;
  }
  Gemma4Bench bench_{options(), open_host_device({})};
};

TEST_F(GenerateHost, IsLosslessWhateverIsDrafted) {
  expect_lossless(bench_.engine, 9, {4, 15}, {13});
}

TEST_F(GenerateHost, SamplesTheSameTokensForASeed) { expect_sampling_repeats(bench_.engine, 7); }

TEST_F(GenerateHost, RunsShareAGenerator) { expect_runs_share_a_generator(bench_.engine, {9, 1}); }

TEST_F(GenerateHost, EndsWhereItIsTold) { expect_ends(bench_.engine); }

TEST_F(GenerateHost, PackedWeightsAreLosslessToo) { expect_packed_weights(bench_.engine, 6); }

TEST_F(GenerateHost, RefusesWhatCannotBe) { expect_refusals(bench_.engine); }

TEST_F(GenerateHost, Eagle3HeadIsItsFormula) {
  expect_eagle3_oracle(bench_.engine, true);
  expect_eagle3_oracle(bench_.engine, false);
}

}  // namespace
}  // namespace attune
