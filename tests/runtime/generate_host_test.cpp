// Generation and the EAGLE-3 head on the host device: the same bodies as on a GPU, smaller.
#include <cstring>

#include <gtest/gtest.h>

#include "jit/host_device.h"
#include "tests/runtime/gemma4_bench.h"
#include "tests/runtime/generate_cases.h"
#include "tests/runtime/generate_swap.h"
#include "tests/runtime/lossless_cases.h"
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

// The second context crosses the window of 32.
TEST_F(GenerateHost, IsLosslessWhateverIsDrafted) {
  const auto runs =
      tiny_lossless(bench_.engine, {.name = "tiny", .contexts = {2, 30}, .num_tokens = 12}, 40);
  for (const Drafting drafting : kDraftings) runs->expect_lossless(drafting);
}

// The comparison of the test above sees a wrong acceptance, and a wrong row of a step.
TEST(GenerateHostFaults, AreCounted) {
  enum class Plant { kNone, kBestToken, kStepToken };
  class FaultyDevice : public ForwardingDevice {
   public:
    FaultyDevice(std::unique_ptr<Device> device, const Plant* plant)
        : ForwardingDevice(std::move(device)), plant_(*plant) {}
    void copy_to_host(std::span<std::byte> to, DevicePtr from, StreamHandle stream) override {
      ForwardingDevice::copy_to_host(to, from, stream);
      if (plant_ == Plant::kBestToken && is_of_many(to)) change_first(to);
    }
    void copy_to_device(DevicePtr to, std::span<const std::byte> from,
                        StreamHandle stream) override {
      std::vector<std::byte> bytes(from.begin(), from.end());
      if (plant_ == Plant::kStepToken && is_of_many(bytes)) change_first(bytes);
      ForwardingDevice::copy_to_device(to, bytes, stream);
      ForwardingDevice::synchronize(stream);
    }

   private:
    // Ids of a step of 2 to 16 tokens.
    static bool is_of_many(std::span<const std::byte> bytes) {
      return bytes.size() > sizeof(int) && bytes.size() <= kMaxVerifyTokens * sizeof(int);
    }
    static void change_first(std::span<std::byte> bytes) {
      int id = 0;
      std::memcpy(&id, bytes.data(), sizeof(id));
      id = (id + 1) % 320;
      std::memcpy(bytes.data(), &id, sizeof(id));
    }
    const Plant& plant_;
  };
  Plant plant = Plant::kNone;
  Options options;
  options.device = "host";
  options.cache_path = gemma4_test_cache();
  Engine engine(options, std::make_unique<FaultyDevice>(open_host_device({}), &plant));
  const auto runs = tiny_lossless(engine, {.name = "tiny", .contexts = {1}, .num_tokens = 5}, 40);
  const auto counts = [&] { return runs->compare(Drafting::kRight).counts; };
  const LosslessCounts right = counts();
  EXPECT_EQ(right.differing_ids + right.differing_rows + right.differing_values, 0);
  plant = Plant::kBestToken;
  EXPECT_GT(counts().differing_ids, 0);
  plant = Plant::kStepToken;
  EXPECT_GT(counts().differing_rows, 0);
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
