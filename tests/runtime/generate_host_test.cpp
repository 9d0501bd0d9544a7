// Generation and the EAGLE-3 head on the host device: the same bodies as on a GPU, smaller.
#include <gtest/gtest.h>

#include "jit/host_device.h"
#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/generate_cases.h"
#include "tests/runtime/generate_swap.h"
#include "tests/support/require_cxx.h"

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

// Logits stay on the device where the best token is all that is asked.
TEST(GenerateHostReads, GreedyReadsBestTokensAlone) {
  class CountingDevice : public ForwardingDevice {
   public:
    CountingDevice(std::unique_ptr<Device> device, std::size_t* most)
        : ForwardingDevice(std::move(device)), most_(*most) {}
    void copy_to_host(std::span<std::byte> to, DevicePtr from, StreamHandle stream) override {
      most_ = std::max(most_, to.size());
      ForwardingDevice::copy_to_host(to, from, stream);
    }

   private:
    std::size_t& most_;
  };
  std::size_t most = 0;
  Options options;
  options.device = "host";
  options.cache_path = gemma4_test_cache();
  Engine engine(options, std::make_unique<CountingDevice>(open_host_device({}), &most));
  Generation on(engine);
  NgramDrafter ngram({.max_n = 2, .min_n = 1});
  GenerateOptions asked;
  asked.max_new_tokens = 4;
  asked.chain = 15;
  most = 0;
  on.run(&ngram, tiny_prompt(9), asked);
  EXPECT_GT(most, 0u);
  EXPECT_LE(most, 16 * sizeof(int));
  asked.sampling.temperature = 1;
  on.run(nullptr, tiny_prompt(9), asked);
  EXPECT_EQ(most, 320 * sizeof(float));
}

class GenerateHostSwap : public HostCompilerTest {
 protected:
  static Options options() {
    Options options;
    options.device = "host";
    options.cxx_path = test_host_search().cxx;
    return options;
  }
};

TEST_F(GenerateHostSwap, WinnersServeFromTheNextStepOn) {
  for (const bool in_the_middle : {true, false}) {
    SwapUnderGenerator(options(), open_host_device({}), compiler()).run(in_the_middle);
  }
}

TEST_F(GenerateHost, RefusesWhatCannotBe) { expect_refusals(bench_.engine); }

TEST_F(GenerateHost, Eagle3HeadIsItsFormula) {
  expect_eagle3_oracle(bench_.engine, true);
  expect_eagle3_oracle(bench_.engine, false);
}

}  // namespace
}  // namespace attune
